"""The IOC of these tests is `fodo ioc`, and the client is the face of Fodo."""

import fodo_faces

fodo_faces.replace_ioc()
fodo_faces.install("p4p")
