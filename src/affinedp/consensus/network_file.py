"""The file that describes a network of agents: links, noise, rounds, and values for a trial.

    rounds = 30
    links = [["1", "2", 0.25], ["2", "3", 0.25]]

    [noise]
    law = "gaussian"
    epsilon = 1.0
    delta = 0.01
    mu = 10.0

    [values]
    1 = 20.0

``[noise] bound`` is a public bound on the size of values.  A table ``[mqtt]`` may say under which
``topic`` the agents meet, after how many seconds they ``resend``, and how long they ``linger``.
Every agent reads its neighbours, weights and noise from the same file, so nobody types a weight
twice.  Everything but the values is public; values are for trials, where one person has them all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.consensus.private import PrivateConsensus
from affinedp.errors import AffineDPError
from affinedp.files.documents import Document, Field, FileKind
from affinedp.files.values import a, as_written, at_least, filled_list, number, one_of, shown


def _count(value: Any, where: str) -> int:
    if type(value) is not int or value < 0:
        raise AffineDPError(f"{where} must be a whole number, at least 0, not {shown(value)}")
    return value


def _numbers(value: Any, where: str) -> Any:
    """One number, or a table of them by agent."""
    if isinstance(value, dict):
        return {name: number(entry, f"{where}, {shown(name)}") for name, entry in value.items()}
    return number(value, where)


_LINKS = 'a list such as [["1", "2", 0.25], ["2", "3", 0.25]]'
_NETWORK = FileKind(
    {
        "": {
            "rounds": Field(_count),
            "links": Field(filled_list, needed=_LINKS),
            "weights": Field(as_written),
            "values": Field(a("table"), {}),
        },
        "noise": {
            "law": Field(one_of("gaussian", "laplace", "auto"), "gaussian"),
            "epsilon": Field(_numbers),
            "delta": Field(_numbers),
            "mu": Field(_numbers),
            "sigma": Field(_numbers),
            "bound": Field(number),
        },
        "mqtt": {
            "topic": Field(a("text"), "consensus"),
            "resend": Field(at_least(0.01), 1.0),
            "linger": Field(at_least(), 60.0),
        },
    },
    needed={"noise": ": its law, epsilon, delta and mu"},
    elsewhere={"privacy": "a network file has no [privacy]: epsilon, delta and mu go into [noise]"},
)


@dataclass(frozen=True, eq=False)
class NetworkFile:
    """What a network file says.

    Attributes
    ----------
    consensus : PrivateConsensus
        The network with its noise.
    rounds : int or None
        How many rounds the agents go.
    values : mapping of str to float
        Secret: x(0) of agents, for a trial; may be empty.
    bound : float or None
        A public bound on the size of values.
    mqtt : mapping
        ``topic`` under which the agents meet, and the seconds ``resend`` and ``linger``.
    """

    consensus: PrivateConsensus
    rounds: int | None
    values: Mapping[str, float] = field(repr=False)
    bound: float | None
    mqtt: Mapping[str, Any]


def read_network(path: str | os.PathLike[str]) -> NetworkFile:
    """Read and check a network file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.

    Returns
    -------
    NetworkFile

    Raises
    ------
    AffineDPError
        With the file and what is wrong with it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... links = [["anna", "ben"], ["ben", "cleo"]]
    ... weights = "metropolis"
    ... [noise]
    ... law = "laplace"
    ... epsilon = 1.0
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "network.toml")
    ...     _ = file.write_text(text)
    ...     found = read_network(file)
    >>> found.consensus.process_names, found.rounds
    (('anna', 'ben', 'cleo'), None)
    """
    return _NETWORK.read(Path(path), _network_file)


def _network_file(told: Document) -> NetworkFile:
    names, ends, weights = _links(told[""])
    noise = {key: value for key, value in told["noise"].items() if value is not None}
    bound = noise.pop("bound", None)
    consensus = PrivateConsensus.from_edges(
        len(names),
        [names[a] for a, _ in ends],
        [names[b] for _, b in ends],
        weights=weights,
        names=tuple(names),
        **noise,
    )
    _ = consensus.process_names  # names that processes cannot have are refused here
    secret = {}
    for name, value in told[""]["values"].items():
        if name not in names:
            raise AffineDPError(f"there is a value for {shown(name)}, which has no link")
        try:
            secret[name] = number(value, "a value")
        except AffineDPError:  # it may be secret, whatever is wrong with it
            raise AffineDPError(f"the value of {shown(name)} must be a number") from None
    return NetworkFile(consensus, told[""]["rounds"], secret, bound, told["mqtt"])


def _links(top: Mapping[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]], Any]:
    """The agents by place, the links by name, and their weights."""
    names: dict[str, int] = {}
    ends, weights = [], []
    for place, link in enumerate(top["links"], 1):
        where = f"link {place}"
        if not isinstance(link, list) or len(link) not in (2, 3):
            raise AffineDPError(f'{where} must be two names, with or without a weight: ["1", "2"]')
        pair = tuple(str(end) if type(end) is int else end for end in link[:2])
        if not all(isinstance(end, str) for end in pair):
            raise AffineDPError(f"{where} must begin with two names")
        for end in pair:
            names.setdefault(end, len(names))
        ends.append((pair[0], pair[1]))
        if len(link) == 3:
            weights.append(number(link[2], f"the weight of {where}"))
    overall = top["weights"]
    if weights and (overall is not None or len(weights) < len(ends)):
        raise AffineDPError("give a weight to every link, or one setting 'weights' for all")
    if weights:
        return names, ends, np.array(weights)
    if overall is None or isinstance(overall, str):
        return names, ends, overall
    return names, ends, number(overall, "weights")
