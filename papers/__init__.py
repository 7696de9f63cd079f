"""The papers' experiments, baselines and printed formulas; not a part of the package.

Nothing here may run on private data: generators are not cryptographic, some formulas
are wrong as printed, and what a method claims is not always what it keeps. See
README.md in this folder.
"""
