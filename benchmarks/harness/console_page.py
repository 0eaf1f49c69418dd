"""Measures the overview of the console in Chromium."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from typing import Final

from playwright.async_api import CDPSession, Page, async_playwright

TIMEOUT: Final = 120_000
"""Milliseconds."""

PREPARE: Final = """
window.onUpdate = () => {};
const parse = JSON.parse;
JSON.parse = (text, ...more) => {
    const value = parse(text, ...more);
    for (const app of value?.attention ? value.apps : []) {
        app.running = Math.floor(Math.random() * 1000);
        app.requests_per_second = Math.random() * 100;
        app.generation_tokens_per_second = Math.random() * 1000;
    }
    if (value?.attention) window.onUpdate();
    return value;
};
new MutationObserver(() => {
    const rows = document.querySelectorAll("tbody tr").length;
    if (rows) window.rowsAt ??= performance.now();
}).observe(document, { subtree: true, childList: true });
"""
"""Changes figures of each app in each update, so that all rows are drawn again. Notes the time of the first ones."""

NEXT_UPDATE: Final = "new Promise(drawn => window.onUpdate = () => requestAnimationFrame(() => setTimeout(drawn)))"


async def measure_page(url: str, apps: int, updates: int) -> dict[str, float]:
    """Opens the overview of an instance, and returns seconds and milliseconds.

    Args:
        apps: the number of apps, whose rows must be visible.
        updates: the number of updates that are measured.
    Returns:
        The time until the first paint and until all rows are visible, and for an update the CPU time of scripts.
    Raises:
        FileNotFoundError: Chromium is not installed.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        raise FileNotFoundError("Chromium is not installed: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(TIMEOUT)
        await page.add_init_script(PREPARE)
        await page.goto(f"{url}/console/")
        await page.locator("tbody tr").nth(apps - 1).wait_for()
        rows = await page.evaluate("window.rowsAt")
        paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        costs = await _script_costs(page, updates)
        await browser.close()
    return {
        "first_paint_seconds": paint / 1000,
        "rows_seconds": rows / 1000,
        "script_ms_per_update": statistics.median(costs),
        "most_script_ms_per_update": max(costs),
    }


async def _script_costs(page: Page, updates: int) -> list[float]:
    """Returns the milliseconds of CPU time that scripts need for each of the next updates."""
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    costs = []
    for _ in range(updates):
        before = await _script_seconds(devtools)
        await page.evaluate(NEXT_UPDATE)
        await asyncio.sleep(0.1)
        costs.append(1000 * (await _script_seconds(devtools) - before))
    return costs


async def _script_seconds(devtools: CDPSession) -> float:
    metrics = (await devtools.send("Performance.getMetrics"))["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "ScriptDuration"))
