"""What makes a step of DP-SGD private: clipped sums of integers, and Gaussian noise rounded to integers."""
