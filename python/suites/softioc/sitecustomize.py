"""The IOC of these tests is the face of Fodo, in every process."""

import fodo_faces

fodo_faces.install("softioc")
