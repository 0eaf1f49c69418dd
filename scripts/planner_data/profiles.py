"""Writes the shipped profiles: values that [C] and [H] print, and predictions for the others.

python scripts/planner_data/profiles.py

Published rates are not changed. Each predicted value states its method. Options with several components take the sum of
their components' times (no interference, α = 1 in [C Algorithm 3]). A language model on two GPUs takes its published
time on one GPU, scaled by the roofline. Prefill and decode divide that time in the ratio of the roofline.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from cornserve_planner.profiles.architecture import Architectures
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import MixEntry, ModelProfile, OptionProfile, Throughput
from cornserve_planner.profiles.roofline import GpuMachine, decode_seconds, encode, generate_seconds, prefill
from cornserve_planner.profiles.sourced_value import SourcedValue, Tag, Unit

OUT = Path(__file__).parents[2] / "planner/cornserve_planner/profiles/data/models"
GPU = "A100-80GB"
ARCHITECTURES = Architectures.shipped()
ONE, TWO = (GpuMachine(GpuCatalog.shipped()[GPU], count) for count in (1, 2))

TABLE_1 = "[C Table 1]"
TABLE_4 = "[C Table 4]"
SIZES = {
    "image_encoder": "600 image tokens",
    "video_encoder": "10,000 video tokens",
    "audio_encoder": "200 audio tokens",
}
TEXT, OUTPUT = 1000, 100
VOCODER_SHARE = 0.1
"""Assumed time of Qwen3-Omni's vocoder, which is a convolutional network, relative to that of its talker."""
SUM = "sum of its components' times, without interference (α = 1)"
RATES = {
    "qwen2.5-omni-7b": {
        "image_encoder": 15.64,
        "video_encoder": 1.28,
        "audio_encoder": 34.04,
        "llm": 1.09,
        "audio_generator": 0.28,
    },
    "qwen2.5-vl-32b": {"image_encoder": 12.04, "video_encoder": 0.89, "llm": 0.32},
    "internvl3-38b": {"image_encoder": 1.13, "video_encoder": 0.74, "llm": 0.28},
    "qwen-image": {"llm": 15.67, "image_generator": 0.20},
}
STARTUP: dict[str, dict[str, float | tuple[float, float]]] = {
    "qwen2.5-omni-7b": {"encoder": 24.8, "llm": (115.2, 106.0), "talker": (146.7, 105.8), "generator": 17.2},
    "qwen2.5-vl-32b": {"encoder": 21.7, "llm": (185.4, 137.9)},
    "internvl3-38b": {"encoder": 37.9, "llm": (132.9, 123.3)},
    "qwen-image": {"llm": (124.8, 93.5), "generator": 40.9},
    "qwen3-omni-30b-a3b": {"encoder": 25.3, "llm": (212.6, 139.4), "talker": (145.5, 137.9), "generator": 49.5},
}
"""Seconds; for language models, without and with cached compiled kernels."""


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for profile in (omni(), vision("qwen2.5-vl-32b"), vision("internvl3-38b"), qwen_image(), omni_3(), llava()):
        path = OUT / f"{profile.model}.json"
        profile.write(path)
        print(f"{path}: {len(profile.options)} entries, {path.stat().st_size} bytes")


def omni() -> ModelProfile:
    model = "qwen2.5-omni-7b"
    rates = RATES[model]
    encoders = ("image_encoder", "video_encoder", "audio_encoder")
    requests = (*(SIZES[name] for name in encoders), f"{TEXT} text tokens in, {OUTPUT} out")
    sizes = {**SIZES, "llm": ", ".join(requests)}
    prompt = 600 + 10_000 + 200 + TEXT
    language = weights(model, "llm")
    towers = {"image_encoder": "vision_encoder", "video_encoder": "vision_encoder", "audio_encoder": "audio_encoder"}
    singles = [
        OptionProfile(
            option=name,
            gpu=GPU,
            throughput=(published(rates[name], sizes.get(name, "")),),
            weights=weights(model, towers[name]) if name in towers else language if name == "llm" else None,
            cache_per_request=cache(model, prompt) if name == "llm" else embeddings(model, name),
            **startup(model, "encoder" if name in encoders else "llm" if name == "llm" else "generator"),
        )
        for name in rates
    ]
    together = {
        "encoders": encoders,
        "encoders+llm": (*encoders, "llm"),
        "monolith": (*encoders, "llm", "audio_generator"),
    }
    colocated = [
        OptionProfile(option=option, gpu=GPU, throughput=(summed(rates, parts, sizes["llm"]),))
        for option, parts in together.items()
    ]
    note = (
        "Rates of single components on one A100 as printed. The rates of options with several components, and the "
        "duration of the audio generator's speech, are not published."
    )
    return ModelProfile(model=model, note=note, options=(*singles, *colocated))


def vision(model: str) -> ModelProfile:
    """Returns the profile of a language model with a vision encoder: encoders on one GPU, other options on two."""
    rates = RATES[model]
    decoder = ARCHITECTURES[model].decoder()
    prompt = 600 + 10_000 + TEXT
    requests = f"{SIZES['image_encoder']}, {SIZES['video_encoder']}, {TEXT} text tokens in, {OUTPUT} out"
    unit = (1 / rates["llm"]) / generate_seconds(decoder, prompt, OUTPUT, ONE)
    seconds = {
        "image_encoder": 1 / rates["image_encoder"],
        "video_encoder": 1 / rates["video_encoder"],
        "prefill": unit * TWO.seconds(prefill(decoder, prompt)),
        "decode": unit * decode_seconds(decoder, prompt, OUTPUT, TWO),
    }
    scaled = "roofline on two GPUs, scaled by its error on one [C Table 1]"
    language = weights(model, "llm")
    tower = weights(model, "vision_encoder")

    def two(option: str, parts: tuple[str, ...], source: str) -> OptionProfile:
        rate = figure(1 / sum(seconds[part] for part in parts), "requests/s", "predicted", source)
        held = language.value + (tower.value if "image_encoder" in parts else 0)
        return OptionProfile(
            option=option,
            throughput=(Throughput(rate=rate, requests=requests),),
            weights=size(held),
            gpu=GPU,
            gpus=2,
            cache_per_request=cache(model, prompt),
            **startup(model, "llm"),
        )

    encoders = ("image_encoder", "video_encoder")
    note = (
        "Rates of single components on one A100 as printed. The rates of a language model on two GPUs, of its phases, "
        "and of options with several components are not published."
    )
    return ModelProfile(
        model=model,
        note=note + NOTES.get(model, ""),
        options=(
            OptionProfile(
                option="encoder",
                gpu=GPU,
                throughput=tuple(
                    published(rates[name], SIZES[name], mix=(MixEntry(components=(name,), share=1),))
                    for name in encoders
                ),
                weights=tower,
                cache_per_request=embeddings(model, "video_encoder"),
                **startup(model, "encoder"),
            ),
            OptionProfile(option="llm", gpu=GPU, throughput=(published(rates["llm"], requests),), weights=language),
            two("prefill", ("prefill",), f"{scaled}, its share of prefill"),
            two("decode", ("decode",), f"{scaled}, its share of decode"),
            two("llm", ("prefill", "decode"), scaled),
            two("encoder+prefill", (*encoders, "prefill"), f"{scaled}; {SUM}"),
            two("monolith", (*encoders, "prefill", "decode"), f"{scaled}; {SUM}"),
        ),
    )


NOTES = {
    "internvl3-38b": " The rate of videos cannot belong to 10,000 tokens: InternViT-6B would exceed the peak of an "
    "A100. The rate of images more likely belongs to the 13 tiles (3,328 tokens) of a 1920 × 1080 image than to 600 "
    "tokens."
}


def qwen_image() -> ModelProfile:
    model = "qwen-image"
    rates = RATES[model]
    sizes = {"llm": f"{TEXT} text tokens in", "image_generator": "an image of 512 × 512 in 20 steps"}
    dit = ARCHITECTURES[model].diffusion()
    generator_weights = size(dit.parameters * 2)
    return ModelProfile(
        model=model,
        note="Rates of the components on one A100 as printed. The monolith's rate is not published.",
        options=(
            OptionProfile(
                option="llm",
                gpu=GPU,
                throughput=(published(rates["llm"], sizes["llm"]),),
                weights=weights(model, "llm"),
                **startup(model, "llm"),
            ),
            OptionProfile(
                option="image_generator",
                gpu=GPU,
                throughput=(published(rates["image_generator"], sizes["image_generator"]),),
                weights=generator_weights,
                **startup(model, "generator"),
            ),
            OptionProfile(
                option="monolith",
                gpu=GPU,
                throughput=(summed(rates, tuple(rates), ", ".join(sizes.values())),),
                weights=size(weights(model, "llm").value + generator_weights.value),
            ),
        ),
    )


def omni_3() -> ModelProfile:
    model = "qwen3-omni-30b-a3b"
    found = ARCHITECTURES[model]
    tokens = {"image_encoder": 600, "video_encoder": 10_000, "audio_encoder": 200}
    source = "roofline of {} at 50% of peak FLOP/s and 70% of peak bandwidth"
    towers = tuple(
        Throughput(
            rate=figure(
                1 / ONE.seconds(encode(found.encoder(tower), tokens[name])),
                "requests/s",
                "predicted",
                source.format(SIZES[name]),
            ),
            mix=(MixEntry(components=(name,), share=1),),
            requests=SIZES[name],
        )
        for name, tower in (
            ("image_encoder", "vision_encoder"),
            ("video_encoder", "vision_encoder"),
            ("audio_encoder", "audio_encoder"),
        )
    )
    prompt = sum(tokens.values()) + TEXT
    requests = f"{prompt} tokens in, {OUTPUT} out"
    language = 1 / generate_seconds(found.decoder(), prompt, OUTPUT, TWO)
    encoding = {name: 1 / tower.rate.value for name, tower in zip(tokens, towers, strict=True)}
    speech = 1 / RATES["qwen2.5-omni-7b"]["audio_generator"]
    seconds = {**encoding, "llm": 1 / language, "talker": speech, "vocoder": VOCODER_SHARE * speech}

    def predicted(parts: tuple[str, ...], source: str) -> tuple[Throughput, ...]:
        rate = figure(1 / sum(seconds[part] for part in parts), "requests/s", "predicted", source)
        return (Throughput(rate=rate, requests=requests),)

    other = "time of the audio generator of Qwen2.5-Omni 7B [C Table 1], another model"
    return ModelProfile(
        model=model,
        note="The rates of its components are not published. Those of talker and vocoder are the least certain: they "
        "are taken from another model.",
        options=(
            OptionProfile(option="encoders", gpu=GPU, throughput=towers, **startup(model, "encoder")),
            OptionProfile(
                option="llm",
                gpu=GPU,
                gpus=2,
                throughput=(
                    Throughput(
                        rate=figure(language, "requests/s", "predicted", source.format(requests)), requests=requests
                    ),
                ),
                weights=weights(model, "llm"),
                cache_per_request=cache(model, prompt),
                **startup(model, "llm"),
            ),
            OptionProfile(
                option="encoders+llm",
                gpu=GPU,
                gpus=2,
                throughput=predicted((*tokens, "llm"), SUM),
                weights=weights(model, "llm"),
                cache_per_request=cache(model, prompt),
            ),
            OptionProfile(
                option="talker", gpu=GPU, throughput=predicted(("talker",), other), **startup(model, "talker")
            ),
            OptionProfile(
                option="vocoder",
                gpu=GPU,
                throughput=predicted(("vocoder",), f"{VOCODER_SHARE:.0%} of the {other}; an assumption"),
                **startup(model, "generator"),
            ),
            OptionProfile(option="talker+vocoder", gpu=GPU, throughput=predicted(("talker", "vocoder"), SUM)),
        ),
    )


def llava() -> ModelProfile:
    """Returns the profile of [H Table 6]: a batch of 128, encoded on two RTX 4090, decoded on two A100."""
    model = "llava-1.5-7b"
    batch, gpus = 128, 2
    encoding, language = 6.82, 1.24 + 9.35
    cheap = batch / encoding / gpus
    faster = 312 / 330
    rates = {"image_encoder": cheap * faster, "llm": batch / language / gpus}
    requests = "one image (576 tokens) and a short question, at most 128 tokens out"
    source = "[H Table 6], 128 requests on 2 GPUs"
    as_in_h = "[H Table 6] for an RTX 4090, scaled by the FLOP/s that [H §2] gives for both (312 / 330)"

    def rate(value: float, tag: Tag, source: str) -> tuple[Throughput, ...]:
        return (Throughput(rate=figure(value, "requests/s", tag, source), requests=requests),)

    tower, decoder = weights(model, "vision_encoder"), weights(model, "llm")
    return ModelProfile(
        model=model,
        note="The phases of [H Table 6] contradict §2 of the same paper; their ratio is the ρ of its cost model.",
        options=(
            OptionProfile(
                option="encoder-4090", gpu="RTX-4090", throughput=rate(cheap, "published", source), weights=tower
            ),
            OptionProfile(
                option="encoder-A100",
                gpu=GPU,
                throughput=rate(cheap * faster, "predicted", as_in_h),
                weights=tower,
            ),
            OptionProfile(
                option="llm",
                gpu=GPU,
                throughput=rate(rates["llm"], "published", source),
                weights=decoder,
                cache_per_request=cache(model, 576 + 28),
            ),
            OptionProfile(
                option="monolith",
                gpu=GPU,
                throughput=(summed(rates, tuple(rates), requests),),
                weights=size(tower.value + decoder.value),
                cache_per_request=cache(model, 576 + 28),
            ),
        ),
    )


def published(rate: float, requests: str, mix: tuple[MixEntry, ...] = ()) -> Throughput:
    return Throughput(rate=figure(rate, "requests/s", "published", TABLE_1), mix=mix, requests=requests)


def summed(rates: dict[str, float], parts: tuple[str, ...], requests: str) -> Throughput:
    return Throughput(
        rate=figure(1 / sum(1 / rates[part] for part in parts), "requests/s", "predicted", SUM), requests=requests
    )


class StartupTimes(TypedDict, total=False):
    startup: SourcedValue
    startup_cached: SourcedValue


def startup(model: str, part: str) -> StartupTimes:
    found = STARTUP[model].get(part)
    if found is None:
        return {}
    if isinstance(found, tuple):
        first, cached = found
        return {
            "startup": figure(first, "seconds", "published", TABLE_4),
            "startup_cached": figure(cached, "seconds", "published", TABLE_4),
        }
    return {"startup": figure(found, "seconds", "published", TABLE_4)}


def weights(model: str, component: str) -> SourcedValue:
    return size(ARCHITECTURES[model].components[component].parameters * 2)


def cache(model: str, tokens: int) -> SourcedValue:
    values = ARCHITECTURES[model].decoder().kv_values_per_token * (tokens + OUTPUT)
    return figure(values * 2, "bytes", "predicted", f"[H Eq. 1], {tokens + OUTPUT} tokens in BF16")


def embeddings(model: str, component: str) -> SourcedValue | None:
    tokens = {"image_encoder": 600, "video_encoder": 10_000, "audio_encoder": 200}.get(component)
    if tokens is None:
        return None
    hidden = ARCHITECTURES[model].decoder().hidden
    return figure(hidden * tokens * 2, "bytes", "predicted", f"embeddings of {tokens} tokens in BF16")


def size(value: float) -> SourcedValue:
    return figure(value, "bytes", "predicted", "counted from the public configuration, in BF16")


def figure(value: float, unit: Unit, tag: Tag, source: str) -> SourcedValue:
    return SourcedValue(value=float(f"{value:.12g}"), unit=unit, tag=tag, source=source)


if __name__ == "__main__":
    main()
