use super::*;

struct ProgramFolder(TempDir);

impl ProgramFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, script: &str) -> LocalProgram {
        LocalProgram {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            folder: self.0.path().to_owned(),
            output: self.path("output"),
            timeout: Duration::from_secs(60),
        }
    }

    async fn has(&self, name: &str) {
        while !self.path(name).exists() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A job whose id no other test has: processes are ended by it.
fn job() -> ProgramJob {
    ProgramJob {
        rollout: RolloutId::new(0, rand::random()),
        task: Map::new(),
        base_url: String::new(),
        anthropic_base_url: String::new(),
        api_key: String::new(),
        max_turns: None,
    }
}

#[tokio::test]
async fn a_run_that_nobody_waits_for_leaves_no_process() {
    let folder = ProgramFolder::new();
    let program = folder.program("setsid sleep 600 & echo $! > new; mv new pid; sleep 600");
    let (job, cancel) = (job(), CancellationToken::new());
    tokio::select! {
        ended = program.run(&job, &cancel) => panic!("{ended:?}"),
        () = folder.has("pid") => {}
    }
    let pid = fs::read_to_string(folder.path("pid")).unwrap();
    let status = PathBuf::from(format!("/proc/{}/status", pid.trim()));
    let gone = async {
        while fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = timeout(Duration::from_secs(10), gone).await;
    assert!(gone.is_ok(), "process {pid} still runs");
}

#[tokio::test]
async fn the_end_of_the_output_is_kept_of_a_program_that_was_interrupted() {
    let folder = ProgramFolder::new();
    let script = "head -c 600000 /dev/zero | tr '\\0' x; echo the end; touch written; sleep 600";
    let program = folder.program(script);
    let (job, cancel) = (job(), CancellationToken::new());
    let interrupting = async {
        folder.has("written").await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(program.run(&job, &cancel), interrupting);
    assert!(matches!(ended, Err(ProgramError::Interrupted)), "{ended:?}");
    let log = folder.path("output").join(format!("{}.log", job.rollout));
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("bytes are left out here]"));
    assert!(log.ends_with("xthe end\n"));
}

#[tokio::test]
async fn a_reward_that_is_no_file_is_not_read() {
    let folder = ProgramFolder::new();
    for script in [
        "mkfifo $METACLAW_REWARD",
        "ln -s /dev/zero $METACLAW_REWARD",
    ] {
        let (program, job) = (folder.program(script), job());
        let ended = program.run(&job, &CancellationToken::new()).await;
        let reward = ended.unwrap().reward;
        assert!(
            matches!(&reward, Some(RewardWritten::Unreadable(why)) if why.contains("no regular file")),
            "{reward:?}"
        );
    }
}
