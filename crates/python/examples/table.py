"""Writes a table into an image with pandas, and reads it again."""

import sys

import pandas


def main(image: str) -> None:
    """Writes and reads a table in `image`, which exists."""
    url = f"throughline://{image}:/table.csv"
    pandas.DataFrame({"x": [1, 2, 3]}).to_csv(url, index=False)
    print(pandas.read_csv(url)["x"].sum())


if __name__ == "__main__":
    main(sys.argv[1])
