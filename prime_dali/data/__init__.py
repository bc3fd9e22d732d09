"""What training, evaluation and tools read: folders of pictures, single pictures, CIFAR, and the order of an epoch."""
