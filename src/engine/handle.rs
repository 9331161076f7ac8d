//! Reaching an engine while it runs.

use tokio::sync::{mpsc, oneshot};

use crate::engine::Outside;
use crate::engine::conductor::{BatchOverview, Granted, Settings, Wish};

/// Messages that may wait for the loop; whoever sends more waits with them.
const MESSAGES_WAITING: usize = 64;

/// Where the answer to a wish goes.
pub(super) type Reply = oneshot::Sender<Granted>;

/// What can be asked of a running engine.
#[derive(Debug)]
pub(super) enum Message {
    Wish(Wish, Reply),
    Overview(oneshot::Sender<Vec<BatchOverview>>),
    Outside(Box<Outside>),
}

/// The engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the engine has ended")]
pub struct EngineGone;

/// Speaks to a running engine; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    sender: mpsc::Sender<Message>,
}

impl Handle {
    pub(super) fn new() -> (Handle, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING);
        (Handle { sender }, receiver)
    }

    /// Has a wish granted: on return it is durable.
    ///
    /// # Errors
    /// [`EngineGone`]; whether the wish was granted then is for the state to tell.
    pub async fn grant(&self, wish: Wish) -> Result<Granted, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Wish(wish, reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Every batch in numbers, with what keeps it from going on.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn overview(&self) -> Result<Vec<BatchOverview>, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Overview(reply)).await.map_err(|_| EngineGone)?;
        answer.await.map_err(|_| EngineGone)
    }

    /// Puts other settings in force, and reaches the outside in another way from now on. What is under way
    /// ends as it began.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub async fn reload(&self, settings: Settings, outside: Outside) -> Result<(), EngineGone> {
        self.sender.send(Message::Outside(Box::new(outside))).await.map_err(|_| EngineGone)?;
        self.grant(Wish::Reload(Box::new(settings))).await.map(drop)
    }
}
