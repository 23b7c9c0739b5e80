"""Each loss by the `tinker` package and by the REST API: what both answer, as one JSON object.

losses.py URL KEY BASE_MODEL
"""

import json
import sys

import httpx
import numpy as np
import tinker
from tinker import types

URL, KEY, BASE = sys.argv[1:4]
SEED, RANK = 11, 8
# What the SDK trains where nothing else is asked for.
TARGETS = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj lm_head".split()
TEXTS = [
    [504, 2780, 3575, 314, 260, 1296, 282, 8582, 30, 198, 504, 3575],
    [1, 4093, 198, 1780, 3575, 42, 2, 198, 260],
]
POLICY = {
    "importance_sampling": None,
    "ppo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
    "cispo": {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0},
    "dro": {"beta": 0.05},
}
rest = httpx.Client(
    base_url=URL, headers={"authorization": f"Bearer {KEY.removeprefix('tml-')}"}, timeout=600
)


def post(path, body):
    answer = rest.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def inputs(loss, tokens):
    """What the loss reads, other numbers at each position, some of them 0."""
    n = len(tokens) - 1
    targets = tokens[1:]
    if loss == "matrix":
        wide = [[token, 30 + at] for at, token in enumerate(targets)]
        return {"target_tokens": wide, "weights": [[0.75, 0.25 * (at % 2)] for at in range(n)]}
    if loss == "cross_entropy":
        return {"target_tokens": targets, "weights": [0.25 * (at % 4) for at in range(n)]}
    return {
        "target_tokens": targets,
        "logprobs": [-2.0 - 0.25 * (at % 8) for at in range(n)],
        "advantages": [0.5 * (at % 5) - 1.0 for at in range(n)],
    }


def flat(rows):
    return [value for row in rows for value in row]


def rest_datum(tokens, given):
    if isinstance(given["target_tokens"][0], int):
        return {"model_input_tokens": tokens[:-1], **given}
    shape = [len(tokens) - 1, 2]
    tensors = {
        name: {"dtype": dtype, "shape": shape, "data": flat(given[name])}
        for name, dtype in (("target_tokens", "int64"), ("weights", "float32"))
    }
    return {"model_input_tokens": tokens[:-1], "loss_fn_inputs": tensors}


def sdk_datum(tokens, given):
    if isinstance(given["target_tokens"][0], int):
        return types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=given
        )
    shape = [len(tokens) - 1, 2]
    tensors = {
        name: types.TensorData(data=flat(given[name]), dtype=dtype, shape=shape)
        for name, dtype in (("target_tokens", "int64"), ("weights", "float32"))
    }
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=tensors)


def by_rest(loss, fn, config, given):
    create = {"base_model": BASE, "rank": RANK, "seed": SEED, "targets": TARGETS}
    run = post("/v1/lora/create", create)["session_id"]
    seen = []
    for _ in range(2):
        body = {
            "session_id": run,
            "datums": [rest_datum(*pair) for pair in zip(TEXTS, given)],
            "loss_fn": fn,
            "loss_fn_config": config or {},
        }
        gradients = post("/v1/train/forward_backward", body)
        step = {"session_id": run, "learning_rate": 1e-3, "skip_over": 0}
        stepped = post("/v1/train/optim_step", step)
        # JSON has the shortest text that is that float32.
        outputs = gradients["loss_fn_outputs"]
        logprobs = [[float(np.float32(value or 0.0)) for value in it["logprobs"]] for it in outputs]
        seen.append([gradients["loss"], stepped["grad_norm"], logprobs])
    saved = post("/v1/weights/save", {"session_id": run, "name": f"rest-{loss}"})
    post("/v1/lora/close", {"session_id": run})
    return {"seen": seen, "sha256": saved["sha256"]}


def by_sdk(service, loss, fn, config, given):
    trainer = service.create_lora_training_client(base_model=BASE, rank=RANK, seed=SEED).result()
    data = [sdk_datum(*pair) for pair in zip(TEXTS, given)]
    seen = []
    for _ in range(2):
        gradients = trainer.forward_backward(data, fn, config).result()
        stepped = trainer.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        logprobs = [
            [float(value) for value in it["logprobs"].data] for it in gradients.loss_fn_outputs
        ]
        seen.append([gradients.metrics["loss:sum"], stepped.metrics["grad_norm"], logprobs])
    path = trainer.save_weights_for_sampler(f"sdk-{loss}").result().path
    run, _, name = path.removeprefix("tinker://").split("/")
    adapter = run.replace(":", ".") + "." + name
    listed = rest.get("/v1/adapters").json()["adapters"]
    sha256 = next(it["sha256"] for it in listed if it["name"] == adapter)
    forward = trainer.forward(data, fn, config).result().metrics["loss:sum"]
    again = trainer.forward_backward(data, fn, config).result().metrics["loss:sum"]
    return {"seen": seen, "sha256": sha256, "forward": [forward, again]}


def main():
    seen = {}
    losses = {"cross_entropy": None, "matrix": None, **POLICY}
    for loss, config in losses.items():
        fn = "cross_entropy" if loss == "matrix" else loss
        given = [inputs(loss, tokens) for tokens in TEXTS]
        # One session a loss: its models are given back before the next begins.
        with tinker.ServiceClient(base_url=URL, api_key=KEY) as service:
            sdk = by_sdk(service, loss, fn, config, given)
        seen[loss] = {"sdk": sdk, "rest": by_rest(loss, fn, config, given)}
    print(json.dumps(seen))


main()
