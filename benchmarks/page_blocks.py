"""The blocks of README.md and docs/ that pages.py writes, each from the files in benchmarks/results."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from common import significant
from loader import NOTES as LOADER_NOTES
from page_accuracies import adaptation, authors_code, beside_reported, fast, methods_table, vit
from result_files import RESULTS, File, count, table, without_own
from throughput import NOTES

FORMATS = {
    "folders": "class folders", "webdataset": "WebDataset", "tfrecord": "TFRecord", "parquet": "Parquet",
    "huggingface": "`save_to_disk`",
}  # fmt: skip


def cpu() -> str:
    """Throughput on a CPU, beside the authors' code and torchvision's augmentations."""
    imagenet, cifar = File("cpu_imagenet.json"), File("cpu_cifar.json")
    rows = []
    for title, file, batch in (
        ("224 x 224, batch 8", imagenet, 8), ("224 x 224, batch 32", imagenet, 32), ("32 x 32, batch 128", cifar, 128)
    ):  # fmt: skip
        prime, theirs, *others = (file.median(n, batch=batch) for n in ("prime", "official", "augmix", "trivial"))
        rows.append([title, count(prime), count(theirs), *map(count, others), count(prime / theirs)])
    content = imagenet.content
    low, high = (f([imagenet.spread()[i], cifar.spread()[i]]) for i, f in enumerate((min, max)))
    unit = 3 * 224**2 * 4 * int(content["threads"].partition(",")[0])
    memory = max(
        (row["peak_bytes"] - row["output_bytes"]) / unit for row in content["results"] if row["name"] == "prime"
    )
    load = max(float(file.content["threads"].rpartition(" ")[2]) for file in (imagenet, cifar))
    head = ["images/s", "prime-dali", "authors' code", "AugMix", "TrivialAugment", "prime-dali / authors"]
    text = (
        f"On an {content['cpu']}; {without_own(content['versions'])}; {content['date'][:10]}. The rounds of one "
        f"candidate differ by {low:.0f} to {high:.0f} % (load average before: up to {load:.1f}). Memory besides the "
        f"output: at most {memory:.1f} float32 images of 224 x 224 per thread."
    )
    return f"{table(head, rows)}\n\n{text}"


def gpu() -> str:
    """Throughput on an H200, beside the authors' code and a plain copy."""
    main, batch, size, cifar = (File(f"h200_{name}.json") for name in ("imagenet", "batch", "size", "cifar"))
    rows = []

    def row(title: str, file: File, name: str, peer: bool, **where: Any) -> None:
        rate, copy = file.median(name, **where), file.median("copy", **where)
        theirs = file.median("official", **where) if peer else None
        rows.append([
            title, count(rate), f"{1e6 / rate:.2f}", count(theirs) if theirs else "",
            f"{rate / theirs:.0f}" if theirs else "", "" if "graph" in name else f"{100 * rate / copy:.1f} %",
        ])  # fmt: skip

    row("224 x 224, batch 256", main, "prime", True)
    row("the same from a CUDA graph", main, "prime-graph", True)
    for images in (128, 512, 2048):
        row(f"224 x 224, batch {images:,}", batch, "prime", False, batch=images)
    for side in (512, 1024):
        row(f"{side} x {side}, batch 64", size, "prime", False, size=side)
    row("32 x 32, batch 512, from a CUDA graph", cifar, "prime-graph", True)
    name = main.content["gpu"].split(",")[0]
    head = [
        name,
        "images/s",
        "us per image",
        "authors' code, images/s",
        "prime-dali / authors",
        "of a plain copy's rate",
    ]

    def extra(one: str) -> str:
        found = main.row(one)
        return count((found["peak_bytes"] - found["output_bytes"]) / 2**20)

    memory = f"Memory besides the output, batch 256: {extra('prime')} MiB (authors' code: {extra('official')} MiB)."
    return f"{table(head, rows)}\n\n{memory}"


def channels() -> str:
    """Throughput by number of channels, and of 16-bit images."""
    rows = []
    for name, dtype in (("channels", "uint8"), ("uint16", "uint16")):
        file = File(f"h200_{name}.json")
        for found in file.content["results"]:
            if found["name"] == "prime":
                rate = found["median"]
                rows.append([str(found["channels"]), dtype, count(rate), f"{1e6 / rate:.2f}"])
    return table(["channels", "dtype", "images/s", "us per image"], rows)


def step() -> str:
    """A training step with PRIME over one without."""
    names = ("h200_step", "h200_step_vit", "h200_step_convnext", "h100_step")
    file, vit, convnext, older = (File(f"{name}.json") for name in names)

    def compared(of: File) -> str:
        plain, prime = 1000 * of.median("plain"), 1000 * of.median("prime")
        both = (of.row(name)["seconds"] for name in ("prime", "plain"))
        ratios = [with_it / without for with_it, without in zip(*both, strict=True)]
        return (
            f"{prime:.1f} ms with PRIME and {plain:.1f} ms without: {prime / plain:.3f} times as long "
            f"({len(ratios)} rounds in turn, one by one {min(ratios):.3f} to {max(ratios):.3f})"
        )

    theirs = older.median("official") / older.median("plain")
    views = file.median("3 views") / file.median("1 view")
    return (
        "A ResNet-50 training step on an H200 (bfloat16, channels last, `torch.compile`, batch 256, PRIME on every "
        f"image) takes {compared(file)}. One of a ViT-S takes {compared(vit)}. One of a ConvNeXt-T takes "
        f"{compared(convnext)}. With the authors' code a step of the "
        f"ResNet-50 takes {theirs:.1f} times as long (an H100, batch 128). PRIME for three views (the clean image and "
        f"two augmented ones) takes {views:.2f} times as long as for one."
    )


def share() -> str:
    """How much longer a training step takes with PRIME."""
    file = File("h200_step.json")
    return f"{100 * (file.median('prime') / file.median('plain') - 1):.0f} %"


def rate() -> str:
    """Images/s of one GPU, in round numbers."""
    return f"{round(File('h200_imagenet.json').median('prime'), -4):,.0f}"


def agreement() -> str:
    """How many pixels differ between CPU and GPU, with the preset imagenet at its depth of 3."""
    found = {
        row["dtype"]: f"{100 * row['off']['CUDA, CPU']:.1f} %"
        for row in File("agreement.json").content["results"]
        if (row["preset"], row["depth"]) == ("imagenet", 3)
    }
    bytes_, floats = found["uint8"], found["float32"]
    return f"{bytes_} of the pixels of uint8 images differ by more than 2/255, of float32 images {floats}"


def epoch(method: str, name: str = "cost.json") -> dict[str, float]:
    """The numbers of a method in a file of ``prime-dali analyze cost``."""
    (found,) = [row for row in File(name).content["methods"] if row["method"] == method]
    return found  # type: ignore[no-any-return]


def cost() -> str:
    """An epoch of CIFAR-10 with and without PRIME."""
    seconds = {name: f"{epoch(name)['s an epoch']:.2f} s" for name in ("standard", "prime", "prime+jsd")}
    theirs = epoch("official", "cost_official.json")["s an epoch"]
    return (
        f"An epoch takes {seconds['prime']} with PRIME, {seconds['standard']} without it, and {seconds['prime+jsd']} "
        f"with PRIME and the Jensen-Shannon loss. With the authors' PRIME code it took {theirs:.2f} s in a run before."
    )


def cost_table() -> str:
    """All methods, those with the authors' code from a run of its own."""
    titles = {
        "standard": "standard", "prime": "PRIME", "augmix": "AugMix, batched on the GPU",
        "prime+jsd": "PRIME, three views, JSD loss", "augmix+jsd": "AugMix, three views, JSD loss",
        "official": "authors' PRIME (an earlier run)",
        "official+jsd": "authors' PRIME, three views, JSD loss (an earlier run)",
    }  # fmt: skip
    rows = []
    for method, title in titles.items():
        found = epoch(method, "cost_official.json" if method.startswith("official") else "cost.json")
        rows.append([title, f"{found['s an epoch']:.2f}", f"{found['over standard']:.3f}"])
    return table(["", "seconds per epoch", "relative to standard"], rows)


def kernel_times() -> str:
    """The time of each kernel."""
    file = File("h200_imagenet.json")
    times = {re.sub(r"prime::(\w+)_kernel.*", r"\1", one["name"]): one["us_per_image"]
             for one in file.content["kernels"] if one["name"].startswith("prime::")}  # fmt: skip
    what = ", ".join(f"{name.replace('_', ' ')} {time:.2f}" for name, time in times.items())
    return f"Microseconds per image at 224 x 224 and batch 256: {what} ({file.source()})."


PIPELINES = {
    "plain": "without PRIME",
    "native": "`native`",
    "cupy": "`cupy`",
    "torch": "`torch`",
    "dlpack": "`dlpack`",
    "trivial": "DALI's `trivial_augment`",
    "auto": "DALI's `auto_augment`",
    "official": "authors' code in a Python operator",
}
DECODED = {"plain": "without PRIME", "copy": "with one `fn.copy` more", "native": "with `native`"}


def pipeline() -> str:
    """Whole DALI pipelines."""
    file, decoded = File("h200_pipeline.json"), File("h200_decoded.json")
    measured = {row["name"] for row in file.content["results"]}
    rows = []
    for name, title in PIPELINES.items():
        three = f"{name} x 3"
        rows.append([title, count(file.median(name)), count(file.median(three)) if three in measured else ""])
    low, high = file.spread()
    ratio = file.median("native") / file.median("plain")
    beside = ", ".join(f"{count(decoded.median(name))} {what}" for name, what in DECODED.items())
    text = (
        f"`native` runs at {ratio:.2f} of the pipeline without PRIME. The rounds of one candidate differ by {low:.0f} "
        f"to {high:.0f} %, because the host had other work. With images that are decoded already, images per second "
        f"are: {beside}."
    )
    return f"{table(['images per second', 'one view', 'three views'], rows)}\n\n{text}"


def scaling() -> str:
    """prime-dali train on one GPU and on several, beside the network alone."""
    file = File("h200_scaling.json")
    rows = []
    for row in file.content["results"]:
        shares = [f"{row[name]:.2f}" for name in ("of_bare", "efficiency", "bare_efficiency", "ratio")]
        rows.append([
            str(row["processes"]), count(row["images_per_second"]), count(row["bare_images_per_second"]), *shares,
        ])  # fmt: skip
    head = ["GPUs", "images/s", "network alone", "share of it", "efficiency", "of the network alone", "their ratio"]
    apart = max(max(row["bare"]) / min(row["bare"]) - 1 for row in file.content["results"])
    return f"{table(head, rows)}\n\nThe rates of the network alone differ by up to {100 * apart:.0f} % within a run."


def loop() -> str:
    """prime-dali train on one GPU with and without PRIME, beside the network alone."""
    rows = []
    for title, name in (("PRIME", ""), ("without PRIME", "_standard"), ("PRIME and the JSD loss, three views", "_jsd")):
        (row,) = File(f"h200_loop{name}.json").content["results"]
        rates = (count(row[rate]) for rate in ("images_per_second", "bare_images_per_second"))
        rows.append([title, *rates, f"{row['of_bare']:.3f}"])
    return table(["one GPU", "images/s", "network alone", "share of it"], rows)


def startup() -> str:
    """How long prime-dali train takes to its first step."""
    file = File("h200_startup.json")
    cold, warm = (file.content["results"][kind] for kind in ("cold", "warm"))
    least, most = significant(min(warm)), significant(max(warm))
    return (
        f"From the start of the command to the end of the first step it takes {significant(median(cold))} s where "
        f"nothing has been compiled yet, neither kernels nor Python's modules, and {significant(median(warm))} s in "
        f"later runs ({len(warm)} of them, {least} to {most} s). {file.source()}"
    )


def peers() -> str:
    """PRIME beside the augmentations of other libraries, on the same GPU in one run."""
    command = "python benchmarks/throughput.py --device cuda --batch 256 --json h200_peers.json"
    if not (RESULTS / "h200_peers.json").exists():
        return f"To compare on your GPU: `{command}`."
    file = File("h200_peers.json")
    own, rows = file.median("prime"), []
    shown = [row for row in file.content["results"] if row["name"] not in ("prime-graph", "copy")]
    for row in shown:
        rate = row["median"]
        rates = [count(rate), significant(own / rate)] if rate else [f"failed: {row['error']}", ""]
        rows.append([f"`{row['name']}`", row["draws"], *rates])
    left_out = [f"`{name}` ({why})" for name, why in file.content["settings"]["missing"].items()]
    missing = [f"Not measured: {', '.join(left_out)}.\n"] if left_out else []
    notes = [f"- `{row['name']}`: {NOTES[row['name']]}" for row in shown]
    head = ["224 x 224, batch 256", "one draw serves", "images/s", "prime-dali / it"]
    return "\n".join([table(head, rows), "", *missing, *notes, "", file.source()])


def loader() -> str:
    """A loader that augments on CPU cores, beside torchvision's augmentations."""
    names = {"cpu_loader.json": "", "cpu_loader_decoded.json": " --decoded"}
    if not all((RESULTS / name).exists() for name in names):
        return "To compare on your cores: `python benchmarks/throughput.py --loader PHOTOS`, also with `--decoded`."
    files = [File(name) for name in names]
    rows = []
    for row in files[0].content["results"]:
        rows.append([f"`{row['name']}`", *(count(file.median(row["name"])) for file in files)])
    workers = files[0].content["settings"]["workers"]
    head = [f"images/s, 224 x 224, {workers} workers", "from JPEG files", "from decoded images"]
    notes = [f"- `{name}`: {note}" for name, note in LOADER_NOTES.items()]
    low, high = (f(file.spread()[i] for file in files) for i, f in enumerate((min, max)))
    apart = f"The rounds of one candidate differ by {low:.0f} to {high:.0f} %, because the host had other work."
    return "\n".join([table(head, rows), "", apart, "", *notes, "", *(f"- {file.source()}" for file in files)])


def formats() -> str:
    """How fast the formats of data sets are read: bytes alone, and in a pipeline."""
    if not (RESULTS / "cpu_formats.json").exists():
        return "To compare on your machine: `python benchmarks/formats.py FOLDER`."
    file = File("cpu_formats.json")
    rows = []
    for name, shown in FORMATS.items():
        cells = []
        for kind in (f"{name}, bytes", name, f"{name} by DALI"):
            rate = [row["median"] for row in file.content["results"] if row["name"] == kind]
            cells.append(count(rate[0]) if rate else "")
        rows.append([shown, *cells])
    head = ["images/s", "encoded bytes alone", "`train_pipeline`", "with DALI's own reader"]
    count_of, size = file.content["images"].split(", ", 1)
    return f"{table(head, rows)}\n\n{count_of} images, {size}. {file.source()}"


def measured() -> str:
    """Under which circumstances, and with which command, each file was measured."""
    names = ("imagenet", "batch", "size", "cifar", "channels", "uint16", "step", "step_vit", "step_convnext",
             "scaling", "loop", "loop_standard", "loop_jsd", "pipeline", "decoded")  # fmt: skip
    files = [*(File(f"h200_{name}.json") for name in names), File("h100_step.json")]
    lines = [file.source() for file in [*files, File("cpu_imagenet.json"), File("cpu_cifar.json")]]
    for name in ("cost", "cost_official"):
        content = File(f"{name}.json").content
        link = f"[{name}.json](../benchmarks/results/{name}.json)"
        lines.append(f"{link}: {content['notes'][1]}; transcribed {content['transcribed']}; `{content['notes'][-1]}`")
    return "\n".join(f"- {line}" for line in lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "main-table": partial(methods_table, "CIFAR-10"),
    "beside-reported": partial(beside_reported, "CIFAR-10"),
    "cifar100-table": partial(methods_table, "CIFAR-100"),
    "fast": partial(fast, 84),
    "fast-half": partial(fast, 42),
    "authors-code": authors_code,
    "bn-adaptation": adaptation,
    "gpu": gpu,
    "channels": channels,
    "cpu": cpu,
    "rate": rate,
    "share": share,
    "agreement": agreement,
    "cost": cost,
    "cost-table": cost_table,
    "kernels": kernel_times,
    "step": step,
    "vit": vit,
    "pipeline": pipeline,
    "scaling": scaling,
    "loop": loop,
    "startup": startup,
    "peers": peers,
    "loader": loader,
    "formats": formats,
    "measured": measured,
}
