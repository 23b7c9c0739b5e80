"""The `tinker` package against our training server: all that its users do, and what it saw as one JSON object.

sdk.py URL KEY BASE_MODEL
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import tinker
from tinker import types

URL, KEY, BASE = sys.argv[1:4]
TEXT = [504, 2780, 3575, 314, 260, 1296, 282, 8582, 30, 198, 504, 3575]
N_STEPS = 16


def datum(tokens):
    n = len(tokens) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [0.0] + [1.0] * (n - 1)},
    )


def client():
    return tinker.ServiceClient(base_url=URL, api_key=KEY)


def model(service, rank, seed):
    return service.create_lora_training_client(base_model=BASE, rank=rank, seed=seed).result()


def pipelined(trainer, batch, n):
    """All calls are sent before any result is looked at; returns the losses and the norms of the gradients."""
    adam = types.AdamParams(learning_rate=1e-3)
    sent = [
        (trainer.forward_backward(batch, "cross_entropy"), trainer.optim_step(adam))
        for _ in range(n)
    ]
    losses = [gradients.result().metrics["loss:sum"] for gradients, _ in sent]
    return losses, [step.result().metrics["grad_norm"] for _, step in sent]


def in_turn(trainer, batch, n):
    losses, norms = [], []
    for _ in range(n):
        loss, norm = pipelined(trainer, batch, 1)
        losses += loss
        norms += norm
    return losses, norms


def run_ids(service):
    runs = service.create_rest_client().list_training_runs().result().training_runs
    return {run.training_run_id for run in runs}


def victim(service):
    """A client that is killed while its calls wait; whether its model was given back."""
    child = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("victim.py"), URL, KEY, BASE],
        stdout=subprocess.PIPE,
        text=True,
    )
    model_id = child.stdout.readline().strip()
    was_there = model_id in run_ids(service)
    child.kill()
    child.wait()
    return model_id, was_there


def is_given_back(service, model_id):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if model_id not in run_ids(service):
            return True
        time.sleep(0.5)
    return False


def refusal(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main():
    service = client()
    models = tinker.RestClient(base_url=URL, api_key=KEY).get_server_capabilities().result()
    models = models.supported_models
    split, whole = model(service, 4, 7), model(service, 4, 7)
    other = model(service, 16, 8)
    batch = [datum(TEXT), datum(TEXT[3:]), datum(TEXT[5:])]
    before = split.forward(batch, "cross_entropy").result()

    # One datum a request: what follows the first is sent first.
    asked_for = split.holder._client_config
    split.holder._client_config = asked_for.model_copy(update={"fwdbwd_max_chunk_len": 1})
    doomed, was_there = victim(service)
    losses, norms = pipelined(split, batch, N_STEPS)
    split.holder._client_config = asked_for
    losses_in_turn, norms_in_turn = in_turn(whole, batch, N_STEPS)
    other_losses, _ = pipelined(other, batch, 2)

    state = split.save_state("step-16").result().path
    again = service.create_training_client_from_state_with_optimizer(state).result()
    fresh = service.create_training_client_from_state(state).result()
    continued = [pipelined(it, batch, 1) for it in (split, again)]
    after = fresh.forward(batch, "cross_entropy").result()

    named = split.save_weights_for_sampler("step-17").result().path
    taken = refusal(lambda: split.save_weights_for_sampler("step-17").result())
    sampler = split.save_weights_and_get_sampling_client()
    by_path = service.create_sampling_client(model_path=named)
    by_base = service.create_sampling_client(base_model=BASE)
    prompt = types.ModelInput.from_ints(TEXT[:4])
    params = types.SamplingParams(max_tokens=6, temperature=1.0, seed=3)
    drawn = [
        it.sample(
            prompt,
            num_samples=2,
            sampling_params=params,
            include_prompt_logprobs=True,
            topk_prompt_logprobs=2,
        ).result()
        for it in (sampler, by_path, by_base)
    ]
    greedy = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[TEXT[5]])
    stopped = sampler.sample(prompt, 1, greedy).result().sequences[0]
    trained_on = sampler.compute_logprobs(types.ModelInput.from_ints(TEXT)).result()
    of_trainer = split.forward([datum(TEXT)], "cross_entropy").result()

    rest = service.create_rest_client()
    checkpoints = rest.list_checkpoints(split.model_id).result().checkpoints
    rest.delete_checkpoint_from_tinker_path(named).result()
    left = rest.list_checkpoints(split.model_id).result().checkpoints
    bad = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2]),
        loss_fn_inputs={"target_tokens": [2, 10**6], "weights": [1.0, 1.0]},
    )
    wrong_datum = refusal(lambda: other.forward_backward([bad], "cross_entropy").result())
    after_it, _ = pipelined(other, batch, 1)
    given_back = is_given_back(service, doomed)

    def shown(sample):
        return {
            "tokens": [list(it.tokens) for it in sample.sequences],
            "logprobs": [len(it.logprobs) for it in sample.sequences],
            "ids": [it.sequence_id for it in sample.sequences],
            "prompt": sample.prompt_logprobs,
            "top": sample.topk_prompt_logprobs,
        }

    print(
        json.dumps(
            {
                "models": [it.model_name for it in models],
                "ranks": [it.get_info().lora_rank for it in (split, other, again)],
                "before": before.metrics["loss:sum"],
                "shapes": [it["logprobs"].shape for it in before.loss_fn_outputs],
                "losses": losses,
                "norms": norms,
                "losses_in_turn": losses_in_turn,
                "norms_in_turn": norms_in_turn,
                "other": other_losses + after_it,
                "continued": continued,
                "after": after.metrics["loss:sum"],
                "state": state,
                "named": named,
                "taken": taken,
                "drawn": [shown(it) for it in drawn],
                "stopped": {"tokens": list(stopped.tokens), "reason": stopped.stop_reason},
                "scored": trained_on,
                "forward": of_trainer.loss_fn_outputs[0]["logprobs"].tolist(),
                "checkpoints": sorted(it.checkpoint_id for it in checkpoints),
                "left": sorted(it.checkpoint_id for it in left),
                "wrong_datum": wrong_datum,
                "victim": [was_there, given_back],
            }
        )
    )


main()
