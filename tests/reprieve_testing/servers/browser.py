"""A headless Chromium, driven by its DevTools protocol: keys of a user, and what the page shows."""

import asyncio
import base64
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from reprieve_testing.servers.stub_api import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_MAX_MESSAGE = 64 * 1024 * 1024
"""A screenshot is one message."""


class Browser:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, count(1)
        self.complaints: list[str] = []
        """What the console says: errors of the script, and what the CSP blocked."""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Make one call of the protocol; keep the complaints that come before its answer."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=60)
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            if message["method"] == "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            elif message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]))

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def see(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(60):
            while not await self.evaluate(expression):  # noqa: ASYNC110 - the browser knows, not an event
                await asyncio.sleep(0.05)

    async def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
            name = " " if key == "Space" else key
            code = {"Enter": 13, "Tab": 9, "Space": 32}.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                await self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=name,
                    windowsVirtualKeyCode=code,
                    **({"text": text} if text and kind == "keyDown" else {}),
                )

    async def type(self, text: str) -> None:
        """Enter a text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def screenshot(self) -> bytes:
        """Return what the tab shows as a PNG."""
        shown = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shown["data"])


@asynccontextmanager
async def browser(directory: Path, url: str, *, is_dark: bool = False) -> AsyncIterator[Browser]:
    """Open an address in a browser of its own."""
    assert CHROMIUM is not None
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *("--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", *sandbox),
        *("--remote-debugging-port=0", f"--user-data-dir={directory}", "--window-size=1280,900"),
        # The server's certificate is of a CA that only the test knows.
        *("--ignore-certificate-errors", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port_file = directory / "DevToolsActivePort"
        await until(lambda: port_file.exists() and len(port_file.read_text().splitlines()) == 2)
        address = f"http://127.0.0.1:{port_file.read_text().splitlines()[0]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/json/list") as reply:
                tab = next(each for each in await reply.json() if each["type"] == "page")
            async with session.ws_connect(
                tab["webSocketDebuggerUrl"], max_msg_size=_MAX_MESSAGE
            ) as socket:
                found = Browser(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await found.call(f"{domain}.enable")
                scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
                await found.call("Emulation.setEmulatedMedia", features=[scheme])
                await found.call("Page.navigate", url=url)
                await found.see(
                    "document.readyState === 'complete' && location.href !== 'about:blank'"
                )
                yield found
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
