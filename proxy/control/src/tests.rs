//! Operations over HTTP and in the process.

use std::{io, sync::Arc, time::Duration};

use axum::{Json, Router, routing::post};
use futures_util::{FutureExt as _, future::BoxFuture};
use metaclaw_chat::AgentId;
use metaclaw_skills::{Library, MemoryConfig, MemoryStore, SkillsConfig, WishesConfig};
use metaclaw_turns::{TurnFilter, TurnLog, TurnsConfig};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::{
    caller::{ControlCaller, by_line},
    client::{ControlClient, ControlError},
    costs::ModelPrices,
    forgetting::Forget,
    home::{Home, RunFile},
    instance::{FileSettings, IdleLearner, Instance, LogOpening, OpenParts},
    lessons::WishChange,
    operation::Operation as _,
    operations::{
        lessons::{GetJournal, ListSkills, ListWishes},
        process::{GetSchedule, GetStatus},
        turns::{Export, GetTurn, TurnsQuery},
        weights::{ListAdapters, PreviewTurn, TrainStep},
    },
    privacy::SwitchChange,
    server, testing,
};

const TOKEN: &str = "token of the run file";

#[derive(Debug)]
struct DefaultFiles(Home);

impl OpenParts for DefaultFiles {
    fn settings(&self) -> anyhow::Result<FileSettings> {
        Ok(FileSettings {
            turns: TurnsConfig::default(),
            checkpoints: self.0.trainer(),
            is_gated: true,
            step_figures: self.0.learning(),
            prices: ModelPrices::default(),
            judges_complaints: true,
        })
    }

    fn library(&self) -> anyhow::Result<Library> {
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        Ok(Library::open(self.0.skills(), skills, wishes).0)
    }

    fn memory(&self) -> anyhow::Result<MemoryStore> {
        Ok(MemoryStore::open(self.0.memory(), MemoryConfig::default()))
    }

    fn learner<'a>(&'a self, _: &'a TurnLog) -> BoxFuture<'a, anyhow::Result<IdleLearner>> {
        Box::pin(async { anyhow::bail!("there is no policy model here") })
    }
}

fn files(home: &Home) -> Arc<Instance> {
    let opener = Arc::new(DefaultFiles(home.clone()));
    let instance = Instance::of_files(home.clone(), "test", LogOpening::Existing, opener);
    Arc::new(instance)
}

async fn home(dir: &tempfile::TempDir) -> Home {
    let home = Home::at(dir.path().join("home"));
    home.create().unwrap();
    let log = TurnLog::open(&home.turns(), &TurnsConfig::default()).unwrap();
    let turn = testing::turn(&agent(), "a", 1_000);
    log.append(turn).await.unwrap();
    log.close().await;
    home
}

fn agent() -> AgentId {
    "main".parse().unwrap()
}

fn client(control: std::net::SocketAddr, token: &str) -> ControlClient {
    let run = RunFile {
        page: None,
        pid: 7,
        control,
        token: token.to_owned(),
        base_url: String::new(),
        started_ms: 0,
        version: "0.0.9".to_owned(),
        settings: None,
    };
    ControlClient::new(run).unwrap()
}

async fn served<T>(
    instance: &Arc<Instance>,
    test: impl AsyncFnOnce(std::net::SocketAddr) -> T,
) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = CancellationToken::new();
    let (token, page) = (TOKEN.to_owned(), Router::new());
    let serving = server::serve(listener, Arc::clone(instance), token, page, ending);
    tokio::select! {
        () = serving => panic!("it ended"),
        done = test(address) => done,
    }
}

/// What a caller answers to a row of operations, each as text.
async fn answers(caller: &ControlCaller) -> Vec<String> {
    let mut lines = Vec::new();
    let each = by_line(|line| {
        lines.push(String::from_utf8_lossy(line).into_owned());
        Ok(())
    });
    caller.stream(Export, |_| (), each).await.unwrap();
    let listed = caller
        .call(TurnsQuery {
            limit: 5,
            ..TurnsQuery::default()
        })
        .await;
    let id = listed.as_ref().unwrap()[0].id;
    lines.extend([
        format!("{listed:?}"),
        format!("{:?}", caller.call(GetTurn(id)).await),
        format!("{:?}", caller.call(PreviewTurn(id)).await),
        format!("{:?}", caller.call(ListWishes(agent())).await),
        format!("{:?}", caller.call(ListSkills(None)).await),
        format!("{:?}", caller.call(GetJournal).await),
        format!("{:?}", caller.call(ListAdapters).await),
        // What is refused is refused in the same words.
        caller.call(GetSchedule).await.unwrap_err().to_string(),
        caller.call(TrainStep(None)).await.unwrap_err().to_string(),
        caller
            .call(WishChange::Undo { n: Some(99) })
            .await
            .unwrap_err()
            .to_string(),
    ]);
    lines
}

#[tokio::test]
async fn an_operation_answers_alike_over_http_and_in_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir).await;
    let instance = files(&home);
    let here = ControlCaller::Files(Arc::clone(&instance));
    let (agent, wish) = (agent(), "Answer in one sentence.".to_owned());
    let told = here
        .call(WishChange::Add {
            agent,
            sender: None,
            wish,
        })
        .await
        .unwrap();
    assert!(
        told.starts_with("in force from the next session on"),
        "{told}"
    );
    let in_process = answers(&here).await;
    let over_http = served(&instance, async |address| {
        answers(&ControlCaller::Process(client(address, TOKEN))).await
    });
    assert_eq!(in_process, over_http.await);
    assert!(
        in_process[0].contains("\"session\":\"a\""),
        "{in_process:?}"
    );
    let counted = here
        .call(ListWishes("main".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!(counted.wishes, ["Answer in one sentence."]);
    here.close().await;
}

#[tokio::test]
async fn nobody_is_let_in_without_the_token_and_a_wrong_body_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let instance = files(&home(&dir).await);
    served(&instance, async |address| {
        let error = client(address, "another")
            .call(&GetJournal)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the admin token of run.json is asked for here"
        );
        let ask = |body: &'static str| async move {
            let http = metaclaw_llm::loopback_client().unwrap();
            let request = http
                .post(format!("http://{address}/turn"))
                .bearer_auth(TOKEN);
            let answer = request.body(body).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let (status, said) = ask("{\"session\": 7}").await;
        assert!(
            status == 422 && said.starts_with("{\"error\":\"invalid type"),
            "{said}"
        );
        assert_eq!(ask("\"1-0\"").await.0, 200);
        // The body is never sent, and a second Origin is not ignored.
        let length = "content-length: 4000000";
        let origins = format!("authorization: Bearer {TOKEN}\r\norigin: null\r\norigin: null");
        for (headers, status) in [
            (length.to_owned(), "401"),
            (format!("authorization: Bearer x\r\n{length}"), "401"),
            (format!("{origins}\r\n{length}"), "400"),
        ] {
            let head = format!("POST /turn HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n");
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut line = [0; 12];
            stream.read_exact(&mut line).await.unwrap();
            assert_eq!(line, *format!("HTTP/1.1 {status}").as_bytes(), "{headers}");
        }
    })
    .await;
    instance.close().await;
}

#[tokio::test]
async fn what_needs_no_log_is_done_where_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path().join("home"));
    let here = ControlCaller::Files(files(&home));
    let off = SwitchChange {
        off: true,
        agent: None,
    };
    assert!(here.call(off).await.unwrap().all);
    assert!(home.off().exists());
    let wishes = here.call(ListWishes(agent())).await.unwrap();
    assert_eq!(wishes.wishes, [""; 0]);
    let error = here.call(TurnsQuery::default()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("there is no log in "),
        "{error}"
    );
    let error = here.stream(Export, |_| (), |_| Ok(())).await.unwrap_err();
    assert!(
        error.to_string().starts_with("there is no log in "),
        "{error}"
    );
    assert!(!home.turns().exists(), "looking makes none");
}

#[tokio::test]
async fn what_is_being_forgotten_is_forgotten_though_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let instance = files(&home(&dir).await);
    let log = instance.log().await.unwrap();
    let begun = Forget::default().perform(&instance).now_or_never();
    assert!(begun.is_none(), "{begun:?}");
    let gone = async {
        while !log.list(TurnFilter::default()).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
    assert!(gone.is_ok());
    instance.close().await;
}

/// The process is killed after it has received the request.
#[tokio::test]
async fn a_change_without_an_answer_may_be_made() {
    async fn said<O: crate::operation::Operation>(operation: O, is_there: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dies = async {
            if is_there {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap();
            }
            drop(listener);
        };
        let client = client(address, TOKEN);
        let asked = async {
            if !is_there {
                tokio::task::yield_now().await;
            }
            client.call(&operation).await
        };
        let ((), answer) = tokio::join!(dies, asked);
        answer.err().unwrap().to_string()
    }
    let change = |what: &str| -> WishChange {
        let fields = json!({"what": what, "agent": "main", "wish": "a", "to": "b", "n": 1});
        serde_json::from_value(fields).unwrap()
    };
    let hint = |shown_by: &str| {
        format!(
            "The change may have been made, or the next start finishes it: `{shown_by}` shows it"
        )
    };
    for what in ["add", "remove", "edit", "undo", "accept", "dismiss"] {
        let text = said(change(what), true).await;
        assert!(text.contains("(process 7) does not answer: "), "{text}");
        assert!(
            text.ends_with(&hint("metaclaw wishes list")),
            "{what}: {text}"
        );
    }
    let text = said(Forget::default(), true).await;
    assert!(text.ends_with(&hint("metaclaw turns list")), "{text}");
    // Without a connection nothing was changed. A question never changes anything.
    for text in [
        said(change("add"), false).await,
        said(GetJournal, true).await,
    ] {
        assert!(!text.contains("may have been made"), "{text}");
    }
}

/// A command that was updated asks a process that was not.
#[tokio::test]
async fn an_answer_of_another_version_says_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let older = Router::new().route("/status", post(async || Json(json!({"pid": 7}))));
    let asked = async { client(address, TOKEN).call(&GetStatus).await };
    let error = tokio::select! {
        ended = async { axum::serve(listener, older).await } => panic!("{ended:?}"),
        status = asked => status.unwrap_err(),
    };
    assert!(
        matches!(error, ControlError::OtherVersion { .. }),
        "{error:?}"
    );
    let said = error.to_string();
    assert!(
        said.contains("is version 0.0.9") && said.contains("`metaclaw stop`"),
        "{said}"
    );
}

#[test]
fn pieces_are_put_together_to_lines() {
    let mut lines = Vec::new();
    let mut each = by_line(|line| {
        lines.push(String::from_utf8_lossy(line).into_owned());
        Ok::<_, io::Error>(())
    });
    for piece in ["a", "b\nc\n", "", "d", "\n", "left"] {
        each(piece.as_bytes()).unwrap();
    }
    drop(each);
    assert_eq!(lines, ["ab", "c", "d"]);
}
