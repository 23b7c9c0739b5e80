//! `metaclaw train` at a server with Tinker's API.

use super::{answers_again, home_of, manifests, server};
use crate::learning::data_set::{events, printed, write};

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_data_set_is_trained_by_tinkers_api() {
    let (trainer, _, folder) = server().await;
    let home = home_of(&trainer.url).with_env("METACLAW__GATE__ENABLED", "false");
    let proxy = home.start().await.unwrap();
    answers_again(&home).await;
    write(home.path());
    for (file, method) in [("chats.jsonl", "cross_entropy"), ("pairs.jsonl", "dpo")] {
        let train = [
            "train",
            file,
            "--epochs",
            "1",
            "--learning-rate",
            "2e-4",
            "--json",
        ];
        let events = events(&printed(&home, &train).await);
        let of = |kind: &str| events.iter().find(|event| event["is"] == kind).unwrap();
        assert_eq!(of("planned")["method"], method);
        let report = of("ended");
        let [before, after] =
            ["held_out_before", "held_out_after"].map(|it| report[it].as_f64().unwrap());
        assert!(after < before, "{method}: {before} -> {after}");
        assert_eq!(report["serves"], true, "{report}");
    }
    // The pairs continue from the chats.
    let made = manifests(folder.path());
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(made.iter().any(|it| it["parent"].is_string()), "{made:?}");
    proxy.stop().await.unwrap();
    trainer.stop().await;
}
