"""The IOC of these tests is `fodo ioc`."""

import fodo_faces

fodo_faces.replace_ioc()
