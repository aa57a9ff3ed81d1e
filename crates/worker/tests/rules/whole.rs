//! The real worker, with its threads and queues, on the in-process broker, against the fake coordinator.
