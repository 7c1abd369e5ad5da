"""Faces of other packages, so that programs written for them run on Fodo."""
