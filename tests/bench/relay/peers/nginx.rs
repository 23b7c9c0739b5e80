//! nginx as it is usually configured for a model server: one worker per CPU, keep-alive on both sides, no buffering of
//! replies, no access log.

use std::{net::SocketAddr, path::Path};

use anyhow::Result;
use tokio::process::Command;

use super::program::{Program, free_address};
use crate::upstream::{NAME, Place};

pub async fn start(nginx: &Path, upstream: &Place) -> Result<Program> {
    let address = free_address().await?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("nginx.conf");
    std::fs::write(&config, settings(address, upstream))?;
    let mut command = Command::new(nginx);
    // The prefix ends in a slash, because nginx only joins the two.
    command
        .arg("-p")
        .arg(format!("{}/", folder.path().display()));
    command.arg("-c").arg(&config).args(["-e", "error.log"]);
    Program::run(command, address, folder).await
}

fn settings(address: SocketAddr, upstream: &Place) -> String {
    // As root, workers would change to a user that may not enter the folder.
    let user = if rustix::process::getuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let (scheme, tls) = match &upstream.ca {
        None => ("http", String::new()),
        Some(ca) => (
            "https",
            format!(
                "proxy_ssl_verify on; proxy_ssl_name {NAME}; proxy_ssl_trusted_certificate {};",
                ca.display()
            ),
        ),
    };
    let upstream = upstream.address;
    // A request must fit into the body buffer, or it is written to a file; and connections are kept for more than the
    // 1,000 requests of the default.
    format!(
        "{user}
daemon off;
pid nginx.pid;
worker_processes auto;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  client_body_buffer_size 128k;
  client_max_body_size 32m;
  keepalive_requests 100000000;
  upstream model {{
    server {upstream};
    keepalive 256;
    keepalive_requests 100000000;
  }}
  server {{
    listen {address};
    location / {{
      proxy_pass {scheme}://model;
      {tls}
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"
    )
}
