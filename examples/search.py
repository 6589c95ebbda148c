"""Search the Python language reference with attention: python examples/search.py [QUERY]

The functions are plain NumPy, in redfuser/demo/functions.py; `rf.fuse` compiles each into one loop.
`redfuser demo` shows the same search with derivations and times.
"""

from __future__ import annotations

import sys

import redfuser as rf
from redfuser.demo import functions
from redfuser.demo.search import DEFAULT_QUERY, Index


def main(query: str) -> None:
    """Print the best matches, then what redfuser derived from the attention function."""
    index = Index(rf.fuse)
    for match in index.search(query).matches:
        print(f"{match.weight:.3f}  {match.paragraph.topic}: {match.paragraph.text[:90]}")
    attention = rf.fuse(functions.attention)
    print()
    print(attention.explain(index.embed(query), index.keys, index.keys))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or DEFAULT_QUERY)
