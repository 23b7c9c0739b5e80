//! Removes our change, line by line, from a file that somebody changed elsewhere. Every other byte stays, and our lines
//! get their former bytes, comments and spaces too.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Returns `now` without the change from `before` to `after`, or none if both changed the same lines.
pub(crate) fn without_ours(before: &str, after: &str, now: &str) -> Option<String> {
    let [before, after, now] = [before, after, now].map(lines);
    let ours = capture_diff_slices(Algorithm::Myers, &before, &after);
    let theirs = capture_diff_slices(Algorithm::Myers, &after, &now);
    let mut restored = now.clone();
    // From the end, so that places before it stay.
    for op in ours.iter().rev() {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let (old, new) = (op.old_range(), op.new_range());
        let start = place(&theirs, &new, after.len())?;
        restored.splice(start..start + new.len(), before[old].iter().copied());
    }
    Some(restored.concat())
}

/// Returns the present place of our lines, if nobody touched them. If we removed lines, their neighbours have to be still
/// adjacent.
fn place(theirs: &[DiffOp], ours: &Range<usize>, n_lines: usize) -> Option<usize> {
    let touched = if ours.is_empty() {
        ours.start.saturating_sub(1)..(ours.end + 1).min(n_lines)
    } else {
        ours.clone()
    };
    theirs.iter().find_map(|op| match op {
        DiffOp::Equal {
            old_index,
            new_index,
            len,
        } => {
            let is_whole = *old_index <= touched.start && touched.end <= old_index + len;
            is_whole.then(|| new_index + (ours.start - old_index))
        }
        _ => None,
    })
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}
