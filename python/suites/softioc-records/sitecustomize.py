"""The IOC of these tests is the face of Fodo. The modules `conftest` and `cothread` are those of the suite softioc."""

import sys
from pathlib import Path

import fodo_faces

sys.path.append(str(Path(__file__).parent.parent / "softioc"))
fodo_faces.install("softioc")
