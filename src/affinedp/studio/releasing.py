"""Previews that were begun: publishing needs one, and each is used at most once.

What they do is in :mod:`affinedp.studio.publishing`, and runs in processes of their own.
"""

from __future__ import annotations

import secrets
import threading
import time

from affinedp.errors import AffineDPError
from affinedp.studio.jobs import Busy, Job, Jobs
from affinedp.studio.publishing import Offer
from affinedp.studio.question import Publication
from affinedp.studio.uploads import Shelf

LONGEST_OFFER = 900.0
# Each holds a file: older previews are forgotten.
MOST_OFFERS = 4


class Releases:
    """Previews that were begun and not used yet.

    Parameters
    ----------
    jobs : Jobs
        Computes, and knows the mechanisms that were designed.
    shelf : Shelf
        Holds the data.
    """

    def __init__(self, jobs: Jobs, shelf: Shelf) -> None:
        self._jobs = jobs
        self._shelf = shelf
        self._offers: dict[str, Offer] = {}
        self._lock = threading.Lock()

    def preview(self, publication: Publication, number: str) -> Job:
        """Begin to tell what a release would spend; nothing is charged or drawn.

        Parameters
        ----------
        publication : Publication
            What is asked for.
        number : str
            What the job is called.
        """
        design = self._jobs.known("design", publication.question.model_dump_json())
        if design is None:
            raise AffineDPError("design the noise first (step 3)")
        held = self._shelf.get(publication.file)
        ticket = secrets.token_urlsafe(16)
        offer = Offer(publication, design, held, ticket, time.monotonic() + LONGEST_OFFER)
        job = self._jobs.start(number, "preview", offer)
        self._keep(offer)
        return job

    def publish(self, ticket: str, number: str) -> Job:
        """Begin to charge the ledger, draw the noise and tell the table; once per preview.

        Parameters
        ----------
        ticket : str
            Which preview was confirmed.
        number : str
            What the job is called.
        """
        with self._lock:
            offer = self._offers.pop(ticket, None)
        if offer is None or offer.until < time.monotonic():
            raise AffineDPError("this preview was used or is too old: look at a new one first")
        try:
            return self._jobs.start(number, "publish", offer)
        except Busy:  # nothing was begun
            self._keep(offer)
            raise

    def _keep(self, offer: Offer) -> None:
        with self._lock:
            now = time.monotonic()
            self._offers = {key: one for key, one in self._offers.items() if one.until > now}
            for oldest in list(self._offers)[: 1 - MOST_OFFERS]:
                del self._offers[oldest]
            self._offers[offer.ticket] = offer
