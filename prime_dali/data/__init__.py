"""Data for training, evaluation and tools: folders of images, single images, CIFAR, and epoch sampling."""
