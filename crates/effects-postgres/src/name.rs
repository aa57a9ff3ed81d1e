//! The names of the errors that do not come of the write itself.

/// The answer to the commit was lost: retried, and the next attempt finds what was written, or writes.
pub const UNKNOWN: &str = "EffectUnknown";
/// Under this key there is an effect of another input: permanent, nothing was written.
pub const CONFLICT: &str = "EffectConflict";
/// The effect is there already, and its recorded output is not of the type that is asked for: permanent.
pub const MISFIT: &str = "EffectMisfit";
/// The output cannot be recorded, since it has no JSON form or is too large: permanent, nothing was written.
pub const OUTPUT: &str = "EffectOutput";
/// The write has ended the transaction that it was given: permanent, and what it wrote may be there without a record.
pub const ENDED: &str = "EffectEnded";
/// The database could not be reached, or refused a statement of ours: retried, nothing was written.
pub const DATABASE: &str = "EffectDatabase";
