"""The library behind an interactive textbook of reinforcement learning.

It reads in chapter order. A module imports only modules that stand above it in this list:

- ``mdp``                  Markov decision processes: transitions, rewards, discount, sampling (chapter 2)
- ``maze``                 the 2x3 maze as a Gymnasium environment and as an exact MDP (chapter 3)
- ``dynamic_programming``  exact evaluation; value, policy and modified policy iteration (chapters 2, 3)
- ``returns``              discounted, n-step and lambda returns; generalized advantages (chapters 2, 4, 7)
- ``experience``           many runs at once, from a table or a real environment; schedules; epsilon-greedy (chapter 4)
- ``monte_carlo``          first-visit prediction and control (chapter 4)
- ``temporal_difference``  TD(0), n-step TD, SARSA, expected SARSA, Q-learning (chapter 4)
- ``evaluation``           statistics over many seeds (every chapter with a learning curve)
- ``explore``              the interactive figure (every chapter)
- ``figures``              drawings that more than one page uses, and the figures' style (every chapter)

Nothing is imported here: ``from rlbook_lib.mdp import MDP`` says where a name lives.
"""
