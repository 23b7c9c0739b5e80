"""Teaches the model of a running metaclaw-trainer one reply, and asks for it.

    TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-KEY python train.py

KEY is the server's METACLAW_API_KEY; a server without one takes any. Needs `pip install tinker jinja2`; chat
templates are read with jinja2.
"""

import tinker
from tinker import types

service = tinker.ServiceClient()
base = tinker.RestClient().get_server_capabilities().result().supported_models[0].model_name
trainer = service.create_lora_training_client(base_model=base, rank=8).result()
tokenizer = trainer.get_tokenizer()

question = [{"role": "user", "content": "Who are you?"}]
prompt = tokenizer.apply_chat_template(
    question, add_generation_prompt=True, tokenize=True, return_dict=False
)
reply = tokenizer.encode("I am the one who was taught.<|im_end|>", add_special_tokens=False)
tokens = prompt + reply
datum = types.Datum(
    model_input=types.ModelInput.from_ints(tokens[:-1]),
    loss_fn_inputs={
        "target_tokens": tokens[1:],
        "weights": [0.0] * (len(prompt) - 1) + [1.0] * len(reply),
    },
)
for step in range(12):
    gradients = trainer.forward_backward([datum], "cross_entropy")
    stepped = trainer.optim_step(types.AdamParams(learning_rate=1e-3))
    print(step, gradients.result().metrics["loss:sum"], stepped.result().metrics)

sampler = trainer.save_weights_and_get_sampling_client().result()
params = types.SamplingParams(max_tokens=24, temperature=0.0)
drawn = sampler.sample(types.ModelInput.from_ints(prompt), 1, params).result()
print(tokenizer.decode(drawn.sequences[0].tokens))
print(trainer.save_state("taught").result().path)
