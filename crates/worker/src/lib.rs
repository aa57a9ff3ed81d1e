//! The runtime that hosts user code: session, claim, replay, attempts, reports.
