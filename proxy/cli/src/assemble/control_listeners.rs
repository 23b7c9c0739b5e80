//! Where subcommands and browsers reach the running process.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::Context as _;
use metaclaw_settings::Config;
use tokio::net::TcpListener;
use tracing::warn;

/// The socket of operations and the page, on this machine; and one for the page alone, if browsers of other machines are
/// to reach it.
pub(super) struct ControlListeners {
    pub(super) control: TcpListener,
    pub(super) page: Option<TcpListener>,
}

// === impl ControlListeners ===

impl ControlListeners {
    pub(super) async fn bind(config: &Config) -> anyhow::Result<Self> {
        let port = config.ui.port_beside(config.gateway.proxy.port);
        let host = config.ui.host;
        let (own_port, page) = if host.is_loopback() {
            (port, None)
        } else {
            (0, Some(bind_or_any(host, port).await?))
        };
        let control = bind_or_any(Ipv4Addr::LOCALHOST.into(), own_port).await?;
        Ok(Self { control, page })
    }

    /// Where a browser of this machine reaches the page.
    pub(super) fn page_address(&self) -> std::io::Result<SocketAddr> {
        let address = self.page.as_ref().unwrap_or(&self.control).local_addr()?;
        let is_any = address.ip().is_unspecified();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
        Ok(if is_any { here } else { address })
    }
}

/// The page is no reason to keep an agent waiting: if another program has the port, a free one is taken.
async fn bind_or_any(host: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    match TcpListener::bind((host, port)).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            warn!(
                port,
                "another program has the port of the page (ui.port), so a free one is taken: `metaclaw ui` opens it"
            );
            Ok(TcpListener::bind((host, 0)).await?)
        }
        bound => {
            bound.with_context(|| format!("cannot listen on {host}:{port} (ui.host, ui.port)"))
        }
    }
}
