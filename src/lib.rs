//! Trainyard.
