"""InternVL3: 9.27 requests/s with static routing [C §7.4], compared with [C Table 1] and [C Figure 2]."""

from __future__ import annotations

from benchmarks.reproduction import best_strategy, hybrid
from benchmarks.reproduction.markdown import prose
from benchmarks.reproduction.published import PublishedFigures
from cornserve_planner.inputs.planning_inputs import load_inputs


def section() -> str:
    rate = next(
        entry.figure.value for entry in PublishedFigures.shipped().from_paper("C", "§7.4") if "static" in entry.what
    )
    encoder = 1 / load_inputs("internvl3-38b").conversion.seconds["encoder", "image_encoder"]
    needed = hybrid.VIA_ENCODERS * rate / hybrid.PRINTED.encoders
    monolith = max(column["4 monoliths"] for column in best_strategy.printed().values()) / 4
    work = hybrid.PRINTED.monoliths * monolith / rate
    language = 1 - (1 - work) / hybrid.VIA_ENCODERS
    better = hybrid.best(needed / monolith, language)
    return prose("static_routing").format(
        rate=rate,
        encoder=encoder,
        needed=needed,
        above=needed / encoder - 1,
        most=hybrid.PRINTED.encoders * encoder / hybrid.VIA_ENCODERS,
        monolith=monolith,
        monoliths=8 * monolith,
        gain=rate / (8 * monolith) - 1,
        language=language,
        encoders=better.encoders,
        others=better.monoliths,
        better=better.rate(needed / monolith, language) * monolith,
    )
