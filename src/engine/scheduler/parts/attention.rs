//! What a step looks at a batch for, beside its turn at admission. A step asks for the batches that need it and looks at no
//! other, so that thousands that wait for their turn cost it nothing.

use enum_map::{Enum, EnumMap};

use crate::domain::parked_reason::Parked;
use crate::engine::scheduler::parts::active_batch::ActiveBatch;

/// See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum Attention {
    /// It is done, and leaves.
    Leaves,
    /// Rows of it whose jobs were canceled before their turn are passed over.
    PassesOver,
    /// What is not sent of it was canceled.
    IsCanceled,
    /// Some of its rows were edited: of their versions one is sent.
    IsEdited,
    /// A manifest went back to what its rows were before.
    GoesBack,
    /// Rows of it that were read name other rows.
    HasReferences,
    /// More of its rows are to be read.
    LoadsRows,
    /// All of it is parked, or may be: it is paused, or waits after its pilot.
    MayBeParkedWhole,
    /// Admission found that its next jobs may not be sent.
    IsNextParked,
    /// The next UTC day may let it go on.
    WaitsForTomorrow,
    /// Jobs of it may have been charged, and nothing tells.
    MayBeCharged,
    /// Rows of it may be sent that have not begun.
    HasRows,
}

/// What a batch is to be looked at for, one of so many.
pub fn attention_of(active: &ActiveBatch, batches: usize) -> EnumMap<Attention, bool> {
    let record = active.record();
    let until_tomorrow = matches!(active.parked(), Some(Parked::DayBudget | Parked::GroupDayBudget));
    let may_send = record.paused.is_none();
    EnumMap::from_fn(|attention| match attention {
        Attention::Leaves => record.is_done(),
        Attention::PassesOver => !record.skipped.is_empty(),
        Attention::IsCanceled => !record.has_ended() && active.is_canceled(),
        Attention::IsEdited => !active.versions().is_empty(),
        Attention::GoesBack => record.versions_pending.is_some() && !active.is_going_back(),
        Attention::HasReferences => active.has_references(),
        Attention::LoadsRows => active.lacks_rows(batches),
        Attention::MayBeParkedWhole => {
            !may_send || active.parked_whole().is_some() || record.waits_after_pilot()
        }
        Attention::IsNextParked => active.is_next_parked(),
        Attention::WaitsForTomorrow => until_tomorrow,
        Attention::MayBeCharged => !record.may_be_charged.is_zero(),
        Attention::HasRows => may_send && record.has_rows_to_send(),
    })
}
