//! Wayland: a compositor reports when its seats were idle for a given time, and when that ends (ext-idle-notify-v1).
//!
//! By the protocol's own rule, a film that keeps the screen awake is not idle time.

use std::{
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wayland_client::{
    Connection, Dispatch, EventQueue, Proxy, QueueHandle, delegate_noop,
    globals::{GlobalListContents, registry_queue_init},
    protocol::{wl_registry::WlRegistry, wl_seat::WlSeat},
};
use wayland_protocols::ext::idle_notify::v1::client::{
    ext_idle_notification_v1::{Event, ExtIdleNotificationV1},
    ext_idle_notifier_v1::ExtIdleNotifierV1,
};

/// A connection to a compositor.
#[derive(Debug)]
pub(super) struct Wayland {
    connection: Connection,
    queue: EventQueue<Seats>,
    seats: Seats,
}

/// The compositor's reports.
#[derive(Debug)]
struct Seats {
    /// Time after which a seat is reported as idle.
    timeout: Duration,
    /// For each seat, since when it has been idle, or none if it is in use.
    idle_since: Vec<Option<Instant>>,
}

// === impl Wayland ===

impl Wayland {
    /// Connects to the compositor at `socket`, and requests a report after `idle`. Returns `None` if it has no
    /// ext-idle-notify, or no seat.
    pub(super) fn open(socket: &Path, idle: Duration) -> Result<Option<Self>, String> {
        let stream = UnixStream::connect(socket);
        let stream = stream.map_err(|error| format!("{}: {error}", socket.display()))?;
        let connection = Connection::from_socket(stream).map_err(|error| error.to_string())?;
        let started = registry_queue_init::<Seats>(&connection);
        let (globals, mut queue) = started.map_err(|error| error.to_string())?;
        let handle = queue.handle();
        let Ok(notifier) = globals.bind::<ExtIdleNotifierV1, _, _>(&handle, 1..=1, ()) else {
            return Ok(None);
        };
        let timeout_ms = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
        let all = globals.contents().clone_list();
        let seats = all
            .iter()
            .filter(|it| it.interface == WlSeat::interface().name);
        let mut idle_since = Vec::new();
        for seat in seats {
            let seat = globals.registry().bind(seat.name, 1, &handle, ());
            notifier.get_idle_notification(timeout_ms, &seat, &handle, idle_since.len());
            idle_since.push(None);
        }
        if idle_since.is_empty() {
            return Ok(None);
        }
        let mut seats = Seats {
            timeout: Duration::from_millis(timeout_ms.into()),
            idle_since,
        };
        let answered = queue.roundtrip(&mut seats);
        answered.map_err(|error| error.to_string())?;
        Ok(Some(Self {
            connection,
            queue,
            seats,
        }))
    }

    /// Returns how long no seat was touched. It is zero until the compositor reports that all are idle.
    pub(super) fn idle_for(&mut self) -> Result<Duration, String> {
        self.hear()
            .map_err(|error| format!("the compositor: {error}"))?;
        let idle = self.seats.idle_since.iter().map(|since| match since {
            Some(since) => self.seats.timeout + since.elapsed(),
            None => Duration::ZERO,
        });
        Ok(idle.min().unwrap_or_default())
    }

    /// Reads the messages that the compositor has sent, without waiting for more.
    fn hear(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        loop {
            self.queue.dispatch_pending(&mut self.seats)?;
            self.queue.flush()?;
            let Some(reading) = self.queue.prepare_read() else {
                continue;
            };
            let socket = self.connection.as_fd();
            let mut ready = [PollFd::new(&socket, PollFlags::IN)];
            if poll(&mut ready, Some(&Timespec::default()))? == 0 {
                return Ok(());
            }
            reading.read()?;
        }
    }
}

// === impl Seats ===

impl Dispatch<ExtIdleNotificationV1, usize> for Seats {
    fn event(
        seats: &mut Self,
        _: &ExtIdleNotificationV1,
        event: Event,
        seat: &usize,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        let since = match event {
            Event::Idled => Some(Instant::now()),
            _ => None,
        };
        if let Some(it) = seats.idle_since.get_mut(*seat) {
            *it = since;
        }
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for Seats {
    fn event(
        _: &mut Self,
        _: &WlRegistry,
        _: <WlRegistry as Proxy>::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        // Seats that are added later are not watched until the next start.
    }
}

delegate_noop!(Seats: ignore WlSeat);
delegate_noop!(Seats: ExtIdleNotifierV1);
