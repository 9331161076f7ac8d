//! What the live pages of a process share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Clock;
use crate::server::event_stream::EventStreams;
use crate::server::live_page::TypedCommands;
use crate::server::page_session::FormKey;
use crate::server::planned_manifests::PlannedManifests;

/// Answers to forms that wait for the page that shows them.
const NOTICES_MAX: usize = 64;

/// What the pages of a process share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pages(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    clock: Clock,
    events: EventStreams,
    forms: FormKey,
    /// What forms came to, with the number under which the next page asks for it.
    notices: Mutex<VecDeque<(String, String)>>,
    planned: PlannedManifests,
    typed: TypedCommands,
}

impl Pages {
    /// Of a process that begins. `typed` gives the commands of a page the flags that they need.
    pub fn new(clock: Clock, typed: TypedCommands) -> Pages {
        let (events, forms, notices) = (EventStreams::new(), FormKey::new(), Mutex::default());
        let planned = PlannedManifests::default();
        Pages(Arc::new(Inside { clock, events, forms, notices, planned, typed }))
    }

    pub(super) fn events(&self) -> &EventStreams {
        &self.0.events
    }

    pub(super) fn clock(&self) -> Clock {
        self.0.clock
    }

    /// What gives the commands of a page the flags that they need.
    pub(super) fn typed_commands(&self) -> TypedCommands {
        self.0.typed
    }

    /// Manifests that wait for their submission.
    pub(super) fn planned(&self) -> &PlannedManifests {
        &self.0.planned
    }

    /// The token of somebody's forms.
    pub(super) fn form_token(&self, principal: &str) -> String {
        self.0.forms.token_of(principal)
    }

    /// Keeps what a form came to, and returns its number.
    pub(super) fn keep_notice(&self, notice: String) -> String {
        let number = uuid::Uuid::new_v4().simple().to_string();
        let mut notices = self.0.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.truncate(NOTICES_MAX - 1);
        notices.push_front((number.clone(), notice));
        number
    }

    pub(super) fn notice(&self, number: Option<&str>) -> Option<String> {
        let notices = self.0.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.iter().find(|(known, _)| Some(known.as_str()) == number).map(|(_, notice)| notice.clone())
    }
}
