//! Tests that the owner's lessons reach the model in every API, and that the program sees no difference.

use serde_json::Value;

use super::Pair;

const WISH: &str = "Answer in one short sentence, in French.";
const CHATS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn a_wish_goes_up_with_each_request_and_not_a_byte_else_changes() {
    for (package, name) in [
        ("openai", "openai_turns.py"),
        ("anthropic", "anthropic_turns.py"),
    ] {
        let pair = Pair::start(package, &Value::Null).await;
        let skills = pair.home.path().join("skills/_default");
        std::fs::create_dir_all(&skills).unwrap();
        std::fs::write(skills.join("WISHES.md"), format!("- {WISH}\n")).unwrap();
        let pair = pair.restarted().await;

        pair.assert_prints_the_same(name, &[]).await;
        let [direct, taught] = [pair.alone.received(), pair.behind.received()];
        assert_eq!(direct.len(), taught.len());
        for (direct, taught) in direct.iter().zip(&taught) {
            let added = added(&direct.body, &taught.body);
            let added = added.unwrap_or_else(|| panic!("{direct:?} became {taught:?}"));
            let is_chat = CHATS.contains(&direct.path());
            let n_wishes = added.matches(WISH).count();
            assert_eq!(n_wishes, usize::from(is_chat), "{added}");
            assert!(is_chat || added.is_empty(), "{added}");
        }
        pair.proxy.stop().await.unwrap();
    }
}

/// Returns what was added to a body at one place; `None` if anything else was changed.
fn added(before: &[u8], after: &[u8]) -> Option<String> {
    let n_same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let rest = &before[n_same..];
    let added = after[n_same..].strip_suffix(rest)?;
    Some(String::from_utf8_lossy(added).into_owned())
}
