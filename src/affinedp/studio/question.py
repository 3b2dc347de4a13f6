"""What the page asks: the state of its four steps, checked before anything is computed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from affinedp.designs.choose import AnyLaw

# What a page can show and a person can look through; beyond it there is the command line.
MOST_CHARACTERS = 100_000
MOST_ENTRIES = 2_000
LONGEST_NAME = 200

Hidden = Literal["definition4", "person", "replace", "directions"]
Text = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Epsilon = Annotated[float, Field(ge=1e-6, le=1e3, allow_inf_nan=False)]
Delta = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, le=1e12, allow_inf_nan=False)]
Size = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False)]


class Strict(BaseModel):
    """A question with a word too many is refused, and does not change once it is asked."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(Strict):
    """Steps 1 to 3: what everyone knows, who must stay hidden, how much noise."""

    equations: Text = "a + b = c"  # one per line; lines that begin with # are remarks
    # published though no equation mentions them
    also: tuple[Name, ...] = Field(default=(), max_length=MOST_ENTRIES)
    # columns that are public, and published as they are beside the numbers
    labels: tuple[Name, ...] = Field(default=(), max_length=MOST_ENTRIES)
    hidden: Hidden = "definition4"
    mu: Size = 1.0  # how far one number moves (Definition 4), or how much one person counts for
    # μ of single entries, where it is another one
    moves: dict[Name, Size] = Field(default_factory=dict, max_length=MOST_ENTRIES)
    # in how many cells one person is counted at most; None for one in every part of the table
    counted: Annotated[int, Field(ge=1, le=1000)] | None = None
    directions: Text = ""  # one difference of neighbours per line, such as a + c
    epsilon: Epsilon = 1.0
    delta: Delta = 0.0
    law: AnyLaw = "auto"


class Wish(Strict):
    """An error that is wished for; the ε that it takes is looked for."""

    question: Question
    error: Positive  # root mean square error of a published number
    now: Positive | None = None  # what it is at the ε of the question, where that is known


class Plant(Strict):
    """A system whose outputs are sent, and the promise about its states."""

    A: Annotated[str, StringConstraints(max_length=20_000)] = "1 0.1; 0 1"
    C: Annotated[str, StringConstraints(max_length=20_000)] = "1 0"
    horizon: Annotated[int, Field(ge=1, le=2_000)] = 100
    mu: Annotated[str, StringConstraints(max_length=2_000)] = "1 0.1"
    neighbours: Literal["time-local", "forward", "initial", "manifold"] = "time-local"
    epsilon: Epsilon = 1.0
    delta: Delta = 0.01


class Meeting(Strict):
    """Agents that look for their average."""

    links: Text = ""
    rounds: Annotated[int, Field(ge=1, le=2_000)] = 60
    mu: Positive = 1.0
    spread: Size = 10.0  # for the picture: values at first lie evenly between 0 and this
    law: Literal["auto", "gaussian", "laplace"] = "auto"
    epsilon: Epsilon = 1.0
    delta: Delta = 0.01


class Look(Strict):
    """A file whose equations are looked for; the user has said that it may be read."""

    file: Annotated[str, StringConstraints(max_length=64)]
    known: tuple[Text, ...] = Field(default=(), max_length=500)
    epsilon: Epsilon = 1.0
    delta: Delta = 0.0


class RowSums(Strict):
    """What was found about the rows of a file, in the words of a table file."""

    index: tuple[Name, ...] = ()
    hierarchy: tuple[Name, ...] = ()
    row_totals: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    changes: dict[Name, Name] = Field(default_factory=dict)
    uncovered: tuple[Text, ...] = ()  # found, and no key of a table file says it


class Sketch(Strict):
    """A table file that is asked for: what was said in steps 1 to 3, and the rows."""

    question: Question
    rows: RowSums


class Tied(Strict):
    """A table whose rows are tied by equations, to be looked at as a whole."""

    file: Annotated[str, StringConstraints(max_length=64)]
    text: Text


class Publication(Strict):
    """A release that is asked for: nothing is charged or drawn before it is confirmed."""

    question: Question
    file: Annotated[str, StringConstraints(max_length=64)]
    # path or address of a ledger that exists
    ledger: Annotated[str, StringConstraints(min_length=1, max_length=4_000)]
    rows: Literal["same", "different"] = "same"  # whether a secret is about one row, or about all
    label: Annotated[str, StringConstraints(max_length=200)] = "studio"


class Share(Strict):
    """A function of what was published from the page, such as a share; it costs nothing."""

    ticket: Annotated[str, StringConstraints(max_length=64)]  # of the release
    formula: Text
