//! One commit for all that wait, dense LSNs.
