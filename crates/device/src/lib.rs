//! Devices: engines, queues and aligned buffers; all unsafe code of throughline.
