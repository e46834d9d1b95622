//! The rules of the store that a test may break on purpose.
//!
//! Each is asked for where the rule is kept. Knows nothing else of the store.

/// A rule to break on purpose, so that the tests prove that they would notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Keep all rules.
    #[default]
    None,
    /// Never flush.
    SkipFlush,
    /// Answer first and flush when the next change comes.
    AcknowledgeEarly,
    /// Reuse an extent as soon as its record was written.
    ReuseEarly,
    /// Reuse an extent behind the flush of its record, when the journal on the medium may not yet
    /// tell so.
    ReuseUnfenced,
    /// Reuse an extent under its readers.
    ForgetReaders,
    /// Open with every record of the journal, whether its extent arrived or not.
    TrustRecords,
    /// Open without making unreadable what was left out of the journal.
    LeaveRest,
    /// Open without what was added to the checkpoint.
    ForgetAdditions,
    /// Write a root without a flush of its checkpoint before.
    RootEarly,
    /// Reuse journal blocks before the root that frees them is durable.
    JournalEarly,
    /// Give out data whose checksum does not match.
    TrustData,
    /// Write the data that go with the journal after the flush.
    LateData,
    /// Leave the record of a put in the journal whose data could not be written.
    KeepFailed,
    /// Use a window that the journal does not announce.
    UseUnannounced,
    /// Write the records of puts in the window behind those of later changes.
    RecordLate,
    /// Answer that a put in the window failed while an opening may still find it.
    LeaveFailed,
    /// Free the journal blocks that announce the window.
    DropWindow,
    /// Reuse what a put in the window gave up as soon as it was made.
    ReuseInWindow,
    /// End a window under those who are in it.
    LeaveInside,
    /// Of two puts of one key in a window keep the one that came last to the index.
    LastWins,
    /// Open with what earlier windows left in the place of the newest.
    FindStale,
    /// Make a checkpoint although a flush failed while it waited for another one.
    CarryOn,
    /// Tell those who share a flush that it succeeded although it failed.
    BelieveFlush,
    /// Answer that a gathered put is durable.
    GatherDurable,
    /// Read past what has been gathered.
    MissGathered,
    /// Make a change of a key while an older one is still gathered.
    LeaveGathered,
    /// Apply the puts that were found anew, although the journal names them before other changes.
    FindAgain,
}
