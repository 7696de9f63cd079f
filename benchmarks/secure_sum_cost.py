"""What a secure sum costs: bytes and computing time against thesis Table 3.1.

    python -m benchmarks.secure_sum_cost

Bytes are those of the packed messages of one release of CAPE, without the query's own
parameters: `sends` and `gets` of one site over all exchanges, and the same of the
aggregator. The table claims O(S + D) for a site and O(S^2 + S D) for the aggregator:
the last columns divide by what is claimed. Times are computing alone, of one site and
of the aggregator, with one site lost after it shared.
"""

from papers.secure_sum import measure

SITES = (4, 16, 64)
SIZES = (420, 100_000, 4_500_000)


def main() -> None:
    """Print one row per number of sites and values."""
    columns = "S D sends/kB gets/kB aggregator/MB /(S+D) /(SS+SD) site/s aggregator/s"
    print(*columns.split(), sep="\t")
    for size in SIZES:
        for n_sites in SITES:
            print(*row(n_sites, size), sep="\t", flush=True)


def row(n_sites: int, size: int) -> list[str]:
    """One row of the table."""
    cost = measure(n_sites, size)
    return [
        f"{n_sites}",
        f"{size}",
        f"{cost['sends'] / 1e3:.1f}",
        f"{cost['gets'] / 1e3:.1f}",
        f"{cost['aggregator'] / 1e6:.2f}",
        f"{cost['site'] / (n_sites + size):.1f}",
        f"{cost['aggregator'] / (n_sites**2 + n_sites * size):.1f}",
        f"{cost['site_seconds']:.3f}",
        f"{cost['aggregator_seconds']:.3f}",
    ]


if __name__ == "__main__":
    main()
