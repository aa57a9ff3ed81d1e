//! The everstep command.
