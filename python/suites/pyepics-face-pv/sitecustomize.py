"""The client of these tests, and of the simulator that changes their PVs, is the face of Fodo."""

import fodo_faces

fodo_faces.install("epics")
