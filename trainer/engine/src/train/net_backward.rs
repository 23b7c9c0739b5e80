//! The backward pass of a gated delta net: chunks first go forward to know what each leaves, then down in the opposite order.

use tch::Tensor;

use super::backward::{LayerBackward, add, params};
use super::chunk::Chunk;
use super::compute::{LayerContext, OutputChunk};
use super::work::TrainOut;
use crate::aten::vjp;
use crate::lora::Projection;
use crate::model::Model;
use crate::torch::Result;

impl LayerBackward {
    /// Runs one chunk: without a graph to know what chunks leave, and then down. Returns true after the last one.
    pub(super) fn net_step(
        &mut self,
        chunks: &[Chunk],
        model: &Model,
        out: &mut TrainOut,
    ) -> Result<bool> {
        if let Some(x) = &self.x
            && self.n_projected_done + 1 < chunks.len()
        {
            let chunk = &chunks[self.n_projected_done];
            let context = LayerContext {
                graph: false,
                ..self.context(model)
            };
            let output = context.net_output(chunk, x, &self.at_places)?;
            if let (Some(edges), Some(cut)) = (&output.edges, &chunk.net) {
                cut.note(&edges.left, &mut self.at_places)?;
            }
            self.n_projected_done += 1;
            return Ok(false);
        }
        let Some(chunk) = chunks.len().checked_sub(self.n_outputs_done + 1) else {
            return Ok(true);
        };
        let output = if let Some(kept) = self.outputs.next_back() {
            kept
        } else {
            let context = self.context(model);
            context.net_output(&chunks[chunk], self.x()?, &self.at_places)?
        };
        self.net_down(&chunks[chunk], &output, out)?;
        self.n_outputs_done += 1;
        Ok(self.n_outputs_done == chunks.len())
    }

    fn net_down(&mut self, chunk: &Chunk, output: &OutputChunk, out: &mut TrainOut) -> Result<()> {
        let (Some(edges), Some(cut)) = (&output.edges, &chunk.net) else {
            return Ok(());
        };
        let params = params(&self.lora, self.first_param, &Projection::ALL);
        let mut leaves: Vec<&Tensor> = params.iter().map(|(_, param)| *param).collect();
        leaves.extend(&output.input);
        leaves.extend(edges.given.iter().flatten());
        let by_left = cut.gradients(&mut self.grads_at_places)?;
        if leaves.is_empty() {
            return Ok(());
        }
        let by_output = chunk.of(&self.grad, 1)?;
        let mut pairs = vec![(&output.y, &by_output)];
        if let Some([states, tails]) = &by_left {
            pairs.extend([(&edges.left.states, states), (&edges.left.tails, tails)]);
        }
        // In the first layer a side without an adapter has no graph.
        pairs.retain(|(y, _)| y.requires_grad());
        let mut grads = vjp(&pairs, &leaves)?;
        if edges.given.is_some()
            && let (Some(tails), Some(states)) = (grads.pop(), grads.pop())
        {
            cut.add_gradients(&[states, tails], &mut self.grads_at_places)?;
        }
        if output.input.is_some()
            && let Some(grad) = grads.pop()
        {
            self.input_grads.insert(0, grad);
        }
        add(&params, &grads, out)
    }
}
