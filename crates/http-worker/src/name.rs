//! The names of the errors of HTTP steps.

/// The request cannot be made of what the workflow said: permanent, nothing was sent.
pub const INVALID: &str = "HttpInvalid";
/// The worker's settings forbid the host or the address: permanent, nothing was sent.
pub const NOT_ALLOWED: &str = "HttpNotAllowed";
/// Nothing of the call was sent: no address, no connection, no TLS, a secret that is not there, or a look before it that
/// failed. Retried, unless the look was refused for good.
pub const NOT_SENT: &str = "HttpNotSent";
/// The answer did not come in time: retried. Whether the callee did its work is not known.
pub const TIMED_OUT: &str = "HttpTimedOut";
/// The connection broke after the call had begun to be sent: retried. Whether the callee did its work is not known.
pub const BROKEN: &str = "HttpBroken";
/// An answer whose status was not expected: 408, 425, 429 and 5xx are retried, all others are permanent.
pub const STATUS: &str = "HttpStatus";
/// The answer was a redirect that is not followed: permanent.
pub const REDIRECT: &str = "HttpRedirect";
/// The answer is larger than the worker takes: permanent. The callee has done its work all the same.
pub const TOO_LARGE: &str = "HttpTooLarge";
