"""``python -m evidence truth``: whether what a study says is true."""

import sys

from evidence.truth import bench

if __name__ == "__main__":
    if sys.argv[1:2] != ["truth"]:
        sys.exit("usage: python -m evidence truth [ROW ...] [--part K/N] [--help]")
    sys.exit(bench.main(sys.argv[2:]))
