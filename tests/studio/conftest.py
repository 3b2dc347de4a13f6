"""A studio that runs while the tests do, and a browser where there is one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from studios import HOST, TOKEN, Studio

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def studio() -> Iterator[Studio]:
    pytest.importorskip("fastapi", reason="needs the extra studio")
    pytest.importorskip("uvicorn", reason="needs the extra studio")
    running = Studio()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def running() -> Iterator[object]:
    """Computations without a server."""
    pytest.importorskip("fastapi", reason="needs the extra studio")
    from affinedp.studio.jobs import Jobs

    made = Jobs(preload="affinedp.studio.tasks")
    yield made
    made.close()


@pytest.fixture(scope="session")
def client(running: object) -> Iterator[object]:
    """A page that asks a server of its own, without a network."""
    from fastapi.testclient import TestClient

    from affinedp.studio.server import create_app

    app = create_app(TOKEN, (HOST,), running)
    with TestClient(app, base_url=f"http://{HOST}", headers={"x-studio-token": TOKEN}) as made:
        yield made


def no_browser() -> str:
    """Why there is no browser, or nothing."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: chromium, chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    return ""


class Page:
    """A tab of a real browser."""

    def __init__(self, driver: object) -> None:
        self.driver = driver

    def open(self, link: str, wait: bool = True) -> None:
        self.driver.get("about:blank")
        self.driver.get(link)
        if wait:
            self.settled()

    def find(self, name: str) -> object:
        from selenium.webdriver.common.by import By

        return self.driver.find_element(By.ID, name)

    def text(self, name: str) -> str:
        return self.find(name).get_property("textContent")

    def click(self, name: str) -> None:
        """As people do, wherever the page is scrolled to."""
        self.press(self.find(name))

    def press(self, element: object) -> None:
        """Click an element, or what a selector finds."""
        if isinstance(element, str):
            element = self.driver.find_element("css selector", element)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def counts_people(self) -> None:
        """Say that rows are groups of people, and that every column left empty counts them."""
        self.driver.execute_script(
            "const no = document.querySelector('[name=row-is][value=group]');"
            "if (!no.checked) no.click();"
            "for (const box of document.querySelectorAll('#moves input')) if (!box.value) {"
            " box.value = '1'; box.dispatchEvent(new Event('input')); }"
        )
        self.settled()

    def until(self, script: str, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while not self.driver.execute_script(f"return Boolean({script})"):
            assert time.monotonic() < end, f"the page never had: {script}"
            time.sleep(0.05)

    def settled(self) -> None:
        """Nothing is being computed, and nothing waits to be asked."""
        time.sleep(0.3)
        self.until("!document.body.dataset.busy")

    def write(self, name: str, text: str) -> None:
        self.driver.execute_script(
            "arguments[0].value = arguments[1];"
            "arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.find(name),
            text,
        )
        self.settled()

    def complaints(self) -> list[str]:
        """What the browser had to say: violations of the policy, errors of scripts."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if "favicon" not in entry["message"]
        ]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if no_browser():
        pytest.skip(no_browser())
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.add_argument("--window-size=1280,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield Page(driver)
    driver.quit()


@pytest.fixture
def page(browser: Page, tmp_path: Path) -> Page:
    """The browser, with downloads going to this test's folder."""
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    browser.complaints()
    return browser
