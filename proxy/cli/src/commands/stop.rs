//! `metaclaw stop`: ends the running process, and waits until it has ended.

use std::{io::ErrorKind, net::TcpListener, time::Duration};

use clap::Args;
use metaclaw_control::{
    client::ControlClient,
    home::{Home, RunFile},
    operations::process::StopProcess,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use super::{context::Context, service};
use crate::{out, wires};

const PAUSE: Duration = Duration::from_millis(50);
const PORT_FREE_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Seconds to wait until the proxy has ended.
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl StopArgs ===

impl StopArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let wires = wires::wires(&context.home);
        let wired = wires.agents()?;
        let pid = end(context, Duration::from_secs(self.timeout)).await?;
        self.report(context, pid)?;
        let restored = wires::release(&wires)?;
        if self.json {
            return Ok(());
        }
        // The proxy did it itself, unless a crash kept it from it.
        if restored.is_empty() && pid.is_some() && !wired.is_empty() {
            let names: Vec<&str> = wired.iter().map(|id| wires::agent_name(id)).collect();
            out::line(format!("files put back: {}", names.join(", ")))?;
        }
        restored.iter().try_for_each(out::line)?;
        Ok(())
    }

    fn report(&self, context: &Context, pid: Option<u32>) -> std::io::Result<()> {
        match (self.json, pid) {
            (true, pid) => out::json(&serde_json::json!({"stopped": pid})),
            (false, Some(pid)) => out::line(format!("MetaClaw: stopped  (PID={pid})")),
            (false, None) => {
                let home = context.home.dir().display();
                out::line(format!("MetaClaw: not running in {home}"))
            }
        }
    }
}

/// Ends the running process and waits for it; its id, where there was one.
///
/// # Errors
///
/// When it is still there after `timeout`.
pub(super) async fn end(context: &Context, timeout: Duration) -> anyhow::Result<Option<u32>> {
    let Some(holder) = context.home.holder()? else {
        service::close_socket(context)?;
        return Ok(None);
    };
    let run = context.home.run_file().ok().flatten();
    // Where systemd keeps the socket, it stops the proxy too, and waits for its end.
    service::close_socket(context)?;
    if context.home.holder()?.is_some() && !ordered(context).await {
        let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| anyhow::anyhow!("process {} cannot be asked", holder.pid))?;
        kill_process(pid, Signal::TERM)?;
    }
    if !gone(&context.home, run.as_ref(), timeout).await? {
        anyhow::bail!(
            "process {} still finishes replies after {} s: `kill {}` ends it at once, and loses no turn that was answered",
            holder.pid,
            timeout.as_secs(),
            holder.pid
        );
    }
    Ok(Some(holder.pid))
}

async fn ordered(context: &Context) -> bool {
    match ControlClient::of_running(&context.home).await {
        Ok(Some(client)) => client.call(&StopProcess).await.is_ok(),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Waits until no process has the home, and then a moment until its port is free, because the process that keeps the
/// socket for a killed proxy ends a little later. Another program may have taken the port.
async fn gone(home: &Home, run: Option<&RunFile>, timeout: Duration) -> anyhow::Result<bool> {
    let deadline = Instant::now() + timeout;
    while home.holder()?.is_some() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let deadline = deadline.min(Instant::now() + PORT_FREE_WITHIN);
    while run.is_some_and(has_port) && Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(true)
}

fn has_port(run: &RunFile) -> bool {
    let bound = TcpListener::bind(run.origin().trim_start_matches("http://"));
    bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start right after a stop must not find the port in use.
    #[tokio::test]
    async fn the_port_of_a_proxy_that_ended_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().to_owned());
        let kept = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = kept.local_addr().unwrap();
        let run = serde_json::json!({
            "pid": 1, "control": address, "token": "", "base_url": format!("http://{address}/v1"),
            "started_ms": 0, "version": "",
        });
        let run: RunFile = serde_json::from_value(run).unwrap();
        let is_gone = gone(&home, Some(&run), Duration::from_secs(60));
        tokio::pin!(is_gone);
        tokio::select! {
            biased;
            _ = &mut is_gone => panic!("the port is not free yet"),
            () = tokio::task::yield_now() => drop(kept),
        }
        assert!(is_gone.await.unwrap());
    }
}
