//! Distillation over the most probable ids at each token of the student's own reply (OpenClaw-RL, arXiv 2603.10165
//! version 2).
//!
//! The index letters mean: `t` an id of the reply, `k` one of the ids that the student found most probable there, `h` a
//! hint.

/// Returns the teacher that agrees most with the student: argmax over h of the sum over t of the number of ids that
/// both lists share. If several are equal, it returns the first.
///
/// # Shapes
/// `student_tk`: `[T][K]` ids; `teachers_htk`: `[H][T][K]`. Returns `None` if there is no teacher.
pub(crate) fn most_agreeing(
    student_tk: &[Vec<u32>],
    teachers_htk: &[Vec<Vec<u32>>],
) -> Option<usize> {
    let overlap = |teacher_tk: &Vec<Vec<u32>>| -> usize {
        let pairs = student_tk.iter().zip(teacher_tk);
        pairs
            .map(|(student, teacher)| n_shared(student, teacher))
            .sum()
    };
    let overlaps = teachers_htk.iter().map(overlap).enumerate();
    // The first of the greatest is needed, and `max_by_key` would return the last.
    let best = overlaps.min_by_key(|(_, overlap)| std::cmp::Reverse(*overlap));
    best.map(|(h, _)| h)
}

fn n_shared(student_k: &[u32], teacher_k: &[u32]) -> usize {
    student_k.iter().filter(|id| teacher_k.contains(id)).count()
}

/// Returns how much better the teacher finds each id than the student does: A = w·clip(log p_T - log p_S, -C, C), where
/// w is the softmax of the student's log-probabilities over these ids.
///
/// # Shapes
/// `student_k`, `teacher_k`: `[K]` log-probabilities of the same ids. Returns `[K]`.
///
/// # Units
/// `most`: C, in nats, above 0.
pub(crate) fn advantages(student_k: &[f32], teacher_k: &[f32], most: f32) -> Vec<f32> {
    let sum: f32 = student_k.iter().map(|l| l.exp()).sum();
    let pairs = student_k.iter().zip(teacher_k);
    let advantage = |(student, teacher): (&f32, &f32)| {
        let weight = student.exp() / sum.max(f32::MIN_POSITIVE);
        weight * (teacher - student).clamp(-most, most)
    };
    pairs.map(advantage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        }
    }

    fn ln(p: &[f32]) -> Vec<f32> {
        p.iter().map(|p| p.ln()).collect()
    }

    /// This is acceptance test 5 of OpenClaw-RL's specification.
    #[test]
    fn the_hint_is_taken_that_the_student_agrees_with_most() {
        let student = [vec![1, 2], vec![3, 4]];
        let one = vec![vec![1, 9], vec![8, 9]];
        let three = vec![vec![2, 1], vec![9, 4]];
        let none = vec![vec![7, 8], vec![7, 8]];
        let of = |teachers: &[Vec<Vec<u32>>]| most_agreeing(&student, teachers);
        assert_eq!(of(&[none.clone(), one.clone(), three.clone()]), Some(2));
        assert_eq!(of(&[three.clone(), one.clone()]), Some(0));
        assert_eq!(of(&[one.clone(), one]), Some(0), "the first of equals");
        assert_eq!(of(&[none]), Some(0), "the only one");
        assert_eq!(of(&[]), None);
    }

    /// This is the second part of the test: the difference is clipped at C, and the weights sum up to 1.
    #[test]
    fn differences_are_clipped_and_weighted_by_what_the_student_finds_likely() {
        let student = ln(&[0.6, 0.2]);
        // 0.6 -> 0.3 gives -ln 2; 0.2 -> 0.6 gives ln 3, clipped to 1.
        let found = advantages(&student, &ln(&[0.3, 0.6]), 1.0);
        close(&found, &[-0.75 * std::f32::consts::LN_2, 0.25]);
        // Every difference is beyond the clip, so A is w alone.
        let found = advantages(&student, &[0.0 + 5.0, 5.0], 1.0);
        close(&found, &[0.75, 0.25]);
        assert!((found.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let found = advantages(&student, &[-30.0, -30.0], 2.0);
        close(&found, &[-1.5, -0.5]);
    }

    /// This is acceptance test 1: without a hint, teacher and student are the same.
    #[test]
    fn a_teacher_that_was_told_nothing_teaches_nothing() {
        let same = ln(&[0.7, 0.2, 0.05, 0.01]);
        let found = advantages(&same, &same, 1.0);
        assert!(found.iter().all(|it| it.abs() < 1e-4), "{found:?}");
    }

    /// This is the second half of test 1: a hint that names an id.
    #[test]
    fn what_the_hint_names_is_pushed_up() {
        let found = advantages(&ln(&[0.5, 0.3, 0.1]), &ln(&[0.1, 0.05, 0.8]), 1.0);
        assert!(
            found[2] > 0.0 && found[0] < 0.0 && found[1] < 0.0,
            "{found:?}"
        );
    }
}
