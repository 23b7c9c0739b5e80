//! The text of lessons in a request.
//!
//! The block of skills equals the original's byte for byte (`## Active Skills`), because people have tuned their
//! prompts around it. The wording of wishes is ours.

use std::{fmt::Write as _, sync::Arc};

use crate::{skill::Skill, wishes::Wish, words::estimate_tokens};

const SKILLS_HEADING: &str = "## Active Skills";
const WISHES_HEADING: &str = "## Standing wishes of the user";

pub(crate) fn system_block(skills: &[Arc<Skill>], wishes: &[Wish]) -> Option<String> {
    let mut block = String::new();
    if !skills.is_empty() {
        block.push_str(SKILLS_HEADING);
    }
    for skill in skills {
        block.push_str("\n\n");
        block.push_str(&one_skill(skill));
    }
    if !wishes.is_empty() {
        let gap = if block.is_empty() { "" } else { "\n\n" };
        let _ = writeln!(block, "{gap}{WISHES_HEADING}");
    }
    for wish in wishes {
        let _ = write!(block, "\n- {}", wish.text);
    }
    (!block.is_empty()).then_some(block)
}

/// Returns a block without the wishes at its end, or `None` if it contains nothing else.
pub fn without_wishes(block: &str) -> Option<&str> {
    let own_line = |at: &usize| *at == 0 || block[..*at].ends_with('\n');
    let at = block.rmatch_indices(WISHES_HEADING).map(|(at, _)| at);
    let skills = at
        .into_iter()
        .find(own_line)
        .map_or(block, |at| &block[..at])
        .trim_end_matches('\n');
    (!skills.is_empty()).then_some(skills)
}

/// Returns the line after the owner's messages: the wishes in their own words, which small models obey best.
pub fn user_line(wishes: &[Wish]) -> Option<String> {
    let texts: Vec<&str> = wishes.iter().map(|wish| wish.text.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// Returns the line after the messages of a person beside the owner. In a group, the messages of all its people are in
/// one prompt, so the line says whose wishes these are.
pub(crate) fn sender_line(wishes: &[Wish]) -> Option<String> {
    let line = user_line(wishes)?;
    Some(format!(
        "(Wishes of the sender of this message, for the reply to it alone: {line})"
    ))
}

/// Returns the first skills of `ranked` that fit the budget. If one is too long, a shorter one after it can take its
/// place.
pub(crate) fn within_budget(
    ranked: impl Iterator<Item = Arc<Skill>>,
    budget: usize,
    most: usize,
) -> Vec<Arc<Skill>> {
    let mut left = budget;
    let fits = |skill: &Arc<Skill>| {
        let cost = cost(skill);
        let fits = cost <= left;
        left -= if fits { cost } else { 0 };
        fits
    };
    ranked.filter(fits).take(most).collect()
}

/// Returns the newest wishes that fit the budget, in the order of the file.
pub(crate) fn newest_within_budget(wishes: &[Wish], budget: usize) -> &[Wish] {
    let mut left = budget;
    let mut from = wishes.len();
    for wish in wishes.iter().rev() {
        let cost = estimate_tokens(&wish.text) + 2;
        if cost > left {
            break;
        }
        left -= cost;
        from -= 1;
    }
    &wishes[from..]
}

/// Returns the approximate cost of a skill in a request, in tokens.
pub(crate) fn cost(skill: &Skill) -> usize {
    estimate_tokens(&one_skill(skill))
}

fn one_skill(skill: &Skill) -> String {
    format!(
        "### {}\n_{}_\n\n{}",
        skill.name, skill.description, skill.content
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, content: &str) -> Arc<Skill> {
        let text = format!("---\nname: {name}\ndescription: When {name}.\n---\n{content}");
        Arc::new(Skill::parse(&text).unwrap())
    }

    fn wish(text: &str) -> Wish {
        Wish {
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_block_has_the_originals_form_and_wishes_stand_last() {
        let skills = [skill("a", "# A\nDo."), skill("b", "B.")];
        insta::assert_snapshot!(system_block(&skills, &[wish("Be brief.")]).unwrap(), @r"
        ## Active Skills

        ### a
        _When a._

        # A
        Do.

        ### b
        _When b._

        B.

        ## Standing wishes of the user

        - Be brief.
        ");
        assert_eq!(system_block(&[], &[]), None);
        assert!(
            system_block(&[], &[wish("x")])
                .unwrap()
                .starts_with(WISHES_HEADING)
        );
    }

    #[test]
    fn wishes_are_taken_out_of_the_block_and_skills_stay() {
        let skills = [skill("a", "# A\nNames ## Standing wishes of the user.")];
        let wishes = [wish("Be brief.")];
        let alone = system_block(&skills, &[]).unwrap();
        let both = system_block(&skills, &wishes).unwrap();
        assert_eq!(without_wishes(&both), Some(alone.as_str()));
        assert_eq!(without_wishes(&alone), Some(alone.as_str()));
        assert_eq!(without_wishes(&system_block(&[], &wishes).unwrap()), None);
    }

    #[test]
    fn a_skill_too_long_makes_way_for_a_shorter_one() {
        let skills = [
            skill("a", "short"),
            skill("b", &"long ".repeat(100)),
            skill("c", "short"),
        ];
        let names = |budget, most| {
            let kept = within_budget(skills.iter().cloned(), budget, most);
            kept.iter()
                .map(|skill| skill.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(20, 6), ["a", "c"]);
        assert_eq!(names(1_000, 2), ["a", "b"]);
        assert!(names(0, 6).is_empty());
    }

    #[test]
    fn the_newest_wishes_win() {
        let wishes = [
            wish("Answer in one short sentence."),
            wish("In French."),
            wish("No lists."),
        ];
        assert_eq!(newest_within_budget(&wishes, 12), &wishes[1..]);
        assert_eq!(newest_within_budget(&wishes, 300), &wishes[..]);
        assert!(newest_within_budget(&wishes, 0).is_empty());
    }

    #[test]
    fn the_users_line_is_one_line() {
        assert_eq!(
            user_line(&[wish("Be brief."), wish("In French.")]).unwrap(),
            "Be brief. In French."
        );
    }
}
