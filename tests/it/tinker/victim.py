"""A client that says which model it trains, sends much work, and waits to be killed.

victim.py URL KEY BASE_MODEL
"""

import sys

import tinker
from tinker import types

URL, KEY, BASE = sys.argv[1:4]
service = tinker.ServiceClient(base_url=URL, api_key=KEY)
trainer = service.create_lora_training_client(base_model=BASE, rank=8).result()
tokens = [504, 2780, 3575, 314, 260, 1296, 282, 8582, 30, 198] * 40
datum = types.Datum(
    model_input=types.ModelInput.from_ints(tokens[:-1]),
    loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
)
sent = [trainer.forward_backward([datum] * 4, "cross_entropy") for _ in range(16)]
print(trainer.model_id, flush=True)
for future in sent:
    future.result()
