//! The fields of the trainer's own routes; those of chats are in `metaclaw_trainer_chat::fields`.

mod sample;
mod training;

pub(crate) use metaclaw_trainer_chat::fields::{Field, check, cut};

pub(crate) use self::{
    sample::SAMPLE,
    training::{
        CLOSE_RUN, CREATE, FORWARD, FORWARD_BACKWARD, LOAD_ADAPTER, LOAD_CHECKPOINT, OPTIM_STEP,
        PRUNE, SAVE_CHECKPOINT, SAVE_WEIGHTS, UNLOAD_ADAPTER,
    },
};

#[cfg(test)]
mod tests;
