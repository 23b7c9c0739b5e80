//! An HTTP server that answers as a test says. It runs in threads, so that a test needs no runtime for it.

use std::{
    collections::VecDeque,
    io::{self, BufReader, BufWriter, Read as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::SystemTime,
};

use crate::{
    reply::{End, Reply},
    request::Request,
};

/// A server on a port that the system chose. It takes no connections after its drop.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<dyn Fn(&Request) -> Reply + Send + Sync>,
    asked: Mutex<Vec<Request>>,
    hang_ups: Mutex<Vec<SystemTime>>,
    is_away: AtomicBool,
    is_over: AtomicBool,
}

/// The address of a server that is gone: `http://127.0.0.1:PORT`.
pub fn gone() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    format!("http://{}", listener.local_addr().expect("bound"))
}

// === impl Server ===

impl Server {
    /// Answers each request so. A request is in [`Server::asked`] when its answer is made.
    pub fn new(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            asked: Mutex::default(),
            hang_ups: Mutex::default(),
            is_away: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if serving.is_away.load(Ordering::SeqCst) {
                    continue;
                }
                let (Ok(stream), of) = (stream, Arc::clone(&serving)) else {
                    continue;
                };
                // A client may go at any time.
                thread::spawn(move || of.serve(&stream).ok());
            }
        });
        Self { address, shared }
    }

    /// Gives these answers in turn, then hangs up.
    pub fn scripted(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = Mutex::new(replies.into_iter().collect::<VecDeque<_>>());
        Self::new(move |_| lock(&replies).pop_front().unwrap_or_else(Reply::hang_up))
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Request> {
        lock(&self.shared.asked).clone()
    }

    /// The requests of this path so far.
    pub fn asked_of(&self, path: &str) -> Vec<Request> {
        let asked = self.asked().into_iter();
        asked.filter(|it| it.path() == path).collect()
    }

    /// When clients gave up their replies.
    pub fn hang_ups(&self) -> Vec<SystemTime> {
        lock(&self.shared.hang_ups).clone()
    }

    /// The network goes, or is there again: new connections end before anything is read.
    pub fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::SeqCst);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, which then closes the port.
        let _ = TcpStream::connect(self.address);
    }
}

// === impl Shared ===

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = Request::read(&mut reader)? {
            if self.is_away.load(Ordering::SeqCst) || self.is_over.load(Ordering::SeqCst) {
                break;
            }
            let is_last = request.header("connection") == Some("close");
            let has_body = request.method() != "HEAD";
            lock(&self.asked).push(request.clone());
            let reply = (self.answer)(&request);
            let end = reply.send(&mut BufWriter::new(stream), has_body);
            if end.is_err() || matches!(end, Ok(End::Silence)) {
                let _ = reader.read_to_end(&mut Vec::new());
                lock(&self.hang_ups).push(SystemTime::now());
            }
            if is_last || !matches!(end, Ok(End::Whole)) {
                break;
            }
        }
        Ok(())
    }
}

/// A panic of another thread does not make a list wrong.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
