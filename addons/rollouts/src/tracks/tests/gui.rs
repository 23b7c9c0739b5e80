//! The track `gui`, with the example's server and Chromium.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{
    super::Track,
    scripted::{Scripted, run},
};
use crate::task::tasks;

/// The example's server; it ends when dropped.
struct ExampleServer {
    child: Child,
    address: String,
}

impl Drop for ExampleServer {
    fn drop(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // It removes the browser's profile.
            let _ = kill_process(id, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rollouts/gui")
}

/// Starts the server, or returns `None` on a machine without Chromium, Python or a font.
fn server() -> Option<ExampleServer> {
    let mut command = Command::new("python3");
    command
        .arg(folder().join("server.py"))
        .args(["--port", "0"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut address = String::new();
    let child = child.ok().and_then(|mut child| {
        let mut lines = BufReader::new(child.stdout.take()?);
        lines.read_line(&mut address).ok()?;
        Some(child)
    });
    let address = address.trim().to_owned();
    let server = child
        .map(|child| ExampleServer { child, address })
        .filter(|it| it.address.starts_with("http://"));
    if server.is_none() {
        println!("skipped: the example's server needs python3, Chromium and a font");
        assert!(
            std::env::var_os("METACLAW_TEST_BIN_DIR").is_none(),
            "the whole suite needs python3, Chromium and a font"
        );
    }
    server
}

fn first_task(server: &ExampleServer) -> Value {
    let first = tasks(&folder().join("tasks.jsonl")).unwrap().remove(0);
    let mut task = Value::Object(first.fields);
    task["server"] = json!(server.address);
    task
}

fn click(x: u32, y: u32) -> Scripted {
    Scripted::Call("click", json!({ "x": x, "y": y }))
}

#[tokio::test]
#[ignore = "needs 27 s, cargo xtask test --all runs it"]
async fn every_task_of_the_example_can_be_solved_and_needs_it() {
    let Some(server) = server() else {
        return;
    };
    let tasks = tasks(&folder().join("tasks.jsonl")).unwrap();
    assert_eq!(tasks.len(), 20);
    for task in tasks {
        let id = task.id;
        let mut task = Value::Object(task.fields);
        task["server"] = json!(server.address);
        let calls = task["solution"]["calls"].as_array().unwrap().clone();
        let calls = calls.iter().map(|call| {
            let name: &'static str = call["name"].as_str().unwrap().to_owned().leak();
            Scripted::Call(name, call["arguments"].clone())
        });
        let solved = run(Track::Gui, &task, calls.chain([Scripted::done()]).collect()).await;
        assert!(solved.score() > 0.99, "{id}: {}", solved.score());
        let lazy = run(Track::Gui, &task, vec![Scripted::done()]).await;
        assert!(lazy.score() < 0.01, "{id} needs nothing to be done");
    }
}

#[tokio::test]
async fn the_model_is_shown_the_screen_as_an_image_part_after_each_action() {
    let Some(server) = server() else {
        return;
    };
    let script = vec![
        click(79, 59),
        click(5000, 0),
        Scripted::Call("jump", json!({})),
        Scripted::done(),
    ];
    let done = run(Track::Gui, &first_task(&server), script).await;
    assert!(done.score() > 0.99);
    let messages = done.requests[3]["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    let turn = ["assistant", "tool", "user"];
    assert_eq!(
        roles,
        [&["system", "user"][..], &turn, &turn, &turn].concat()
    );
    assert_eq!(
        messages[1]["content"][0]["text"],
        "Put a pen into the basket."
    );
    for (place, image) in [(1, 1), (4, 0)] {
        let url = messages[place]["content"][image]["image_url"]["url"].as_str();
        assert!(url.unwrap().starts_with("data:image/png;base64,"));
    }
    assert_ne!(
        messages[1]["content"][1], messages[4]["content"][0],
        "the basket is drawn"
    );
    assert_eq!(messages[3]["content"], "done");
    assert_eq!(messages[9]["content"], "error: there is no action 'jump'");
    let names = done.requests[0]["tools"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|it| &it["function"]["name"]).collect();
    assert_eq!(names, ["click", "type_text", "press", "scroll"]);
}

#[tokio::test]
async fn a_model_that_reads_only_text_is_refused_in_words_and_may_be_told_the_screen() {
    let Some(server) = server() else {
        return;
    };
    let mut task = first_task(&server);
    // The words of the training server.
    let refusal = json!({ "error": {
        "message": "messages[1].content is a part of type image_url, allowed: text, or a list of text parts (this model reads text only)",
        "code": "unsupported_value",
    } });
    let refused = run(Track::Gui, &task, vec![Scripted::Error(400, refusal)]).await;
    let words = refused.result.unwrap_err().to_string();
    assert!(
        words.starts_with("the model does not read images: "),
        "{words}"
    );
    assert!(words.contains("this model reads text only"), "{words}");
    assert!(words.contains("\"observation\": \"text\""), "{words}");
    assert_eq!(refused.reward, None);
    task["observation"] = json!("text");
    let told = run(Track::Gui, &task, vec![click(79, 59), Scripted::done()]).await;
    assert!(told.score() > 0.99);
    let prompt = told.requests[0]["messages"][1]["content"].as_str().unwrap();
    assert!(prompt.contains("button at 79,59: Add pen"), "{prompt}");
    assert!(
        told.shown(1).contains("In the basket: pen"),
        "{}",
        told.shown(1)
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let task = json!({ "prompt": "x", "server": address });
    let done = run(Track::Gui, &task, vec![Scripted::done()]).await;
    let words = done.result.unwrap_err().to_string();
    let expected = format!("the environment server at {address}/reset does not do its part: ");
    assert!(words.starts_with(&expected), "{words}");
    assert!(words.contains("Connection refused"), "{words}");
}
